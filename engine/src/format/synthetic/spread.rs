//! How large synthetic weights are: such that activations stay of order one through all layers.
//!
//! A linear layer of `n` inputs whose weights have deviation 1/√n passes the size of its input on. Inputs come from norms and
//! have size one, so all projections are of that kind. What a block adds to the residual stream is smaller by √(2·layers), so
//! that the stream, which begins with size one, has grown by a factor of √2 at most when all 2·layers blocks have added to it.
//! (Hyper-connections mix the streams by a doubly stochastic matrix, which makes none larger, and weigh what is added by about one.)
//!
//! Tried in float64 with a `glm5_next` of 45 layers, 256 wide, over 40 tokens: the streams' root mean square goes from 1.00 to
//! 1.17, blocks add 0.03 to 0.1 each, logits have deviation 4.0, and 38 of 40 tokens have different likeliest successors.

use crate::config::Family;

/// A tensor's values spread evenly over `middle ± √3·deviation`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub deviation: f64,
    pub middle: f64,
}

const fn about(middle: f64, deviation: f64) -> Spread {
    Spread { deviation, middle }
}

/// The spread of the tensor `name` of `[rows, cols]`.
pub(super) fn of(family: &Family, name: &str, cols: u64) -> Spread {
    let (layers, tied) = match family {
        Family::Llama(config) => (config.layers as usize, config.tied_head),
        Family::Glm5(config) => (config.layers.len(), config.tied_head),
    };
    let pass = 1.0 / (cols as f64).sqrt();
    let add = pass / (2.0 * layers as f64).sqrt();
    let part = name.strip_suffix(".weight").unwrap_or(name);
    let part = part.rsplit('.').next().unwrap_or(part);
    match part {
        // A tied head's logits have deviation 4: the stream begins smaller, which only makes the first blocks count more.
        "token_embd" | "embed_tokens" if tied => about(0.0, 4.0 * pass),
        "token_embd" | "embed_tokens" => about(0.0, 1.0),
        "output" | "lm_head" => about(0.0, 4.0 * pass),
        "attn_output" | "ffn_down" | "o_proj" | "down_proj" => about(0.0, add),
        // Taps of the convolution over time, of which there are few.
        "q_conv1d" | "k_conv1d" | "v_conv1d" => about(0.0, pass),
        // Decays near one, so that a state remembers: the bound times σ(−3 ± …).
        "dt_bias" => about(-3.0, 0.5),
        "A_log" => about(0.0, 0.3),
        "hc_attn_base" | "hc_ffn_base" => about(0.0, 0.25),
        "hc_attn_scale" | "hc_ffn_scale" => about(0.5, 0.1),
        "e_score_correction_bias" => about(0.0, 0.02),
        "index_kpool_compress_ape" => about(0.0, 0.5),
        "bias" => about(0.0, 0.1),
        _ if is_norm(name) => about(1.0, 0.1),
        _ => about(0.0, pass),
    }
}

fn is_norm(name: &str) -> bool {
    ["norm.weight", "layernorm.weight"].iter().any(|end| name.ends_with(end))
}
