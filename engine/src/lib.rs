//! bitwalk: an LLM decode engine for NVIDIA GPUs.
//!
//! A token is one *walk* of a fixed list of kernel launches, run launch by launch (eager) or recorded once as CUDA
//! graphs and replayed, with the same bits either way, and the same bits on a GPU and on the simulated device.

// The code that `#[kernel]` generates names this crate by its name, also in here.
extern crate self as bitwalk;

pub mod cache;
pub mod config;
pub mod decode;
pub mod device;
pub mod engine;
pub mod format;
pub mod generate;
pub mod kernel;
pub mod kernels;
pub mod ledger;
pub mod measure;
pub mod models;
mod modules;
pub mod observe;
pub mod options;
pub mod pipeline;
pub mod plan;
pub mod quant;
pub mod tokenizer;
