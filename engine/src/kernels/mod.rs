//! The kernels' declarations by family, each beside its CPU reference and its cases.
