use bitwalk::kernel::kernel;

#[kernel(module = "ui", entry = "copy")]
pub struct Copy;

fn main() {}
