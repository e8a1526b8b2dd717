//! What the kernels promise beyond their references: elementary functions to the last place over their ranges, fused kernels
//! with the bits of the parts, results that do not depend on how the work was shared out, and NaN that does not vanish.

mod experts;
mod functions;
mod parts;
mod rig;
