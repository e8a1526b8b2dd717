//! A synthetic model by a name and a format: `--synthetic llama-8b --quant q8_0` for `--model synthetic:llama-8b,format=q8_0`.

use std::path::PathBuf;

use super::model::ModelArgs;
use super::usage;

/// A model of random weights, without a file.
#[derive(Debug, Clone, clap::Args)]
pub struct SyntheticArgs {
    /// Instead of --model: random weights in the shape of a model (smollm2-135m, llama-1b, llama-8b, glm-5.3-flash)
    #[arg(long, value_name = "NAME")]
    synthetic: Option<String>,
    /// The synthetic model's weight format (bf16, q8_0, q4_0 …) [default: what the model is usually run in]
    #[arg(long, value_name = "FORMAT")]
    quant: Option<String>,
}

impl SyntheticArgs {
    /// The model's arguments, with the synthetic one in its place if there is one.
    pub fn applied_to(&self, model: &ModelArgs) -> anyhow::Result<ModelArgs> {
        match (&self.synthetic, &self.quant) {
            (None, None) => Ok(model.clone()),
            (None, Some(_)) => Err(usage("--quant is the format of a --synthetic model".to_owned())),
            (Some(name), quant) => {
                let format = quant.as_ref().map_or(String::new(), |quant| format!(",format={quant}"));
                Ok(model.with_model(PathBuf::from(format!("synthetic:{name}{format}"))))
            }
        }
    }
}
