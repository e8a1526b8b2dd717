//! The kernels' declarations by family, each beside its CPU reference and its cases.
//!
//! References compute in float64 from the same inputs; a declaration's `tol` bounds the difference, relative to the
//! largest value of the output. Where a result is defined to the bit (copies, integers, float32 steps that the program
//! names), it is 0.

pub mod activation;
pub mod attention;
pub mod ceiling;
pub mod embed;
pub mod hyper;
pub mod kda;
pub mod math;
pub mod matvec;
pub mod norm;
pub mod sample;
pub mod sampling;
