//! Synthetic models: complete, of the sizes they claim, the same bits as planes and as tensors, and the same bits for ever.

use bitwalk::config::{Family, check_tensors, glm5};
use bitwalk::format::synthetic::{Recipe, SyntheticSource};
use bitwalk::format::{LinearWeight, TensorSource};
use bitwalk::kernel::TensorFormat;

fn source(recipe: &str) -> SyntheticSource {
    SyntheticSource::new(recipe.parse().unwrap()).unwrap()
}

/// Elements of all matrices and vectors, packed ones counted as what they hold.
fn parameters(source: &SyntheticSource) -> u64 {
    match source.family().unwrap() {
        Family::Llama(_) => source.tensors().iter().map(|info| info.elements()).sum(),
        Family::Glm5(config) => {
            glm5::tensors(&config).map(|tensor| tensor.shape.iter().product::<u64>()).sum()
        }
    }
}

#[test]
fn built_in_models_are_complete_and_as_large_as_their_names_say() {
    // The published counts of parameters; GLM-5.3-Flash by its layers, worked out below.
    let kda = 4 * 4096 * 8192 + 2 * (128 * 4096 + 8192 * 128) + 64 * 4096 + 3 * 8192 * 4 + 8192 + 64 + 128;
    let mla = 1536 * 4096
        + 1536
        + 64 * 256 * 1536
        + 512 * 4096
        + 512
        + 64 * 512 * 512
        + 4096 * 64 * 256
        + 32 * 128 * 1536
        + 2 * 128 * 4096
        + 2 * 128
        + 32 * 4096
        + 4 * 128;
    let every = 2 * 4096 + 2 * (24 * 4 * 4096 + 24 + 3);
    let dense = 3 * 4096 * 12_288;
    let routed = (288 + 1) * 3 * 4096 * 2048 + 288 * 4096 + 288;
    let glm = 34 * kda + 11 * mla + 45 * every + 3 * dense + 42 * routed + 2 * 154_880 * 4096 + 4096;
    for (name, wanted) in [
        ("smollm2-135m", 134_515_008),
        ("llama-1b", 1_235_814_400),
        ("llama-8b", 8_030_261_248),
        ("glm-5.3-flash", glm),
    ] {
        let source = source(name);
        assert_eq!(parameters(&source), wanted, "{name}");
        match source.family().unwrap() {
            Family::Llama(config) => check_tensors(&source, &config).unwrap(),
            Family::Glm5(config) => assert!(glm5::check_tensors(&source, &config).unwrap().is_empty()),
        }
        assert_eq!(source.path().to_str().unwrap(), format!("synthetic:{name}"));
    }
}

#[test]
fn planes_and_tensors_hold_the_same_bits_in_every_format() {
    for format in TensorFormat::ALL {
        let source = source(&format!("glm-5.3-flash,layers=4,experts=2,format={format}"));
        let stem = "model.language_model.layers.3.mlp.experts.1.up_proj";
        let weight = LinearWeight::require(&source, stem, [2048, 4096]).unwrap();
        assert_eq!(weight.format(), format);
        let (rows, blocks) = (weight.rows(), weight.cols() / format.block());
        let sizes: Vec<usize> =
            format.planes().iter().map(|plane| plane.bytes(rows, blocks) as usize).collect();
        let mut written: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![0; size]).collect();
        let mut planes: Vec<&mut [u8]> = written.iter_mut().map(Vec::as_mut_slice).collect();
        weight.write_planes(&source, &mut planes).unwrap();
        let fills = weight.fills(&source).unwrap();
        assert_eq!(fills.len(), written.len(), "{format}");
        for (fill, plane) in fills.iter().zip(&written) {
            let mut filled = vec![0; plane.len()];
            fill.write(&mut filled);
            assert!(filled == *plane, "{format}: {fill:?}");
        }
        // Deviation 1/√4096, but for the spread of the scales of blocks: up to 63 units in the last place of a half, whose
        // mantissa has 1024, add at most a sixth.
        let values = weight.dequantise(&source).unwrap();
        let n = values.len() as f64;
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n * 64.0;
        let square = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n * 4096.0;
        assert!((0.98..1.18).contains(&square), "{format}: mean square {square}");
        assert!(mean.abs() < 0.03, "{format}: mean {mean}");
    }
}

#[test]
fn the_bits_stay_what_they_are() {
    // FNV-1a over a tensor's bytes. These hashes were made once; devices' kernels are tested against the same definition.
    let hash = |source: &SyntheticSource, name: &str| {
        let data = source.data(name).unwrap();
        data.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    let llama = source("smollm2-135m");
    let glm = source("glm-5.3-flash,layers=4,experts=1");
    let layer = "model.language_model.layers.3.";
    let found = [
        hash(&llama, "blk.0.attn_q.weight"),
        hash(&llama, "blk.0.attn_norm.weight"),
        hash(&glm, &format!("{layer}mlp.experts.0.up_proj.weight")),
        hash(&glm, &format!("{layer}mlp.experts.0.up_proj.weight_scale")),
        hash(&glm, &format!("{layer}self_attn.kv_a_proj_with_mqa.weight")),
        hash(&glm, &format!("{layer}hc_attn_base")),
    ];
    assert_eq!(found.map(|hash| format!("{hash:016x}")), HASHES);
    assert_ne!(
        hash(&llama, "blk.0.attn_q.weight"),
        hash(&source("smollm2-135m,seed=1"), "blk.0.attn_q.weight")
    );
}

const HASHES: [&str; 6] = [
    "b680663da4403a31",
    "b77db23f3c8d8936",
    "b9e6a61b36a173ae",
    "75be3aa09b530204",
    "c6ab01e525437bc5",
    "dc4171e3b8d5a5be",
];

#[test]
fn a_medium_mix_has_the_formats_and_sizes_of_real_files() {
    use bitwalk::format::DType;
    let dtype = |source: &SyntheticSource, name: &str| source.find(name).unwrap().dtype;
    // What llama.cpp's quantiser writes: bytes of all tensors but the embedding's of an untied model, of which a token reads a row.
    for (recipe, layers, tied, read) in
        [("llama-1b,format=q4_k_m", 16, true, 0.80e9), ("llama-8b,format=q4_k_m", 32, false, 4.62e9)]
    {
        let source = source(recipe);
        let bytes: u64 = source
            .tensors()
            .iter()
            .filter(|t| tied || t.name != "token_embd.weight")
            .map(|t| t.bytes())
            .sum();
        assert!((bytes as f64 / read - 1.0).abs() < 0.01, "{recipe}: {bytes} bytes a token");
        let better: Vec<u32> = (0..layers)
            .filter(|i| dtype(&source, &format!("blk.{i}.ffn_down.weight")) == DType::Q6_K)
            .collect();
        let wanted: &[u32] = if layers == 16 {
            &[0, 1, 4, 7, 10, 13, 14, 15]
        } else {
            &[0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]
        };
        assert_eq!(better, wanted);
        for i in 0..layers {
            let name = |part: &str| format!("blk.{i}.{part}.weight");
            assert_eq!(dtype(&source, &name("attn_v")), dtype(&source, &name("ffn_down")));
            for part in ["attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up"] {
                assert_eq!(dtype(&source, &name(part)), DType::Q4_K);
            }
        }
        let embedding = if tied { DType::Q6_K } else { DType::Q4_K };
        assert_eq!(dtype(&source, "token_embd.weight"), embedding);
        assert!(tied || dtype(&source, "output.weight") == DType::Q6_K);
    }
    // Rows of 576 are no whole super-blocks; those of 1536 are.
    let small = source("smollm2-135m,format=Q4_K_M");
    let formats = ["token_embd", "blk.0.attn_v", "blk.0.attn_q", "blk.0.ffn_down", "blk.5.ffn_down"];
    let formats = formats.map(|name| dtype(&small, &format!("{name}.weight")));
    assert_eq!(formats, [DType::Q8_0, DType::Q8_0, DType::Q5_0, DType::Q6_K, DType::Q6_K]);
    let error = SyntheticSource::new("smollm2-135m,format=q4_k".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("whole blocks of 256"), "{error}");
}

#[test]
fn options_change_the_recipe() {
    let recipe: Recipe = "glm-5.3-flash,layers=24,experts=16,format=bf16,seed=9".parse().unwrap();
    let Family::Glm5(config) = &recipe.family else { panic!("another family") };
    assert_eq!((config.layers.len(), config.experts, config.experts_per_token, recipe.seed), (24, 16, 8, 9));
    assert_eq!(recipe.formats.mlp, TensorFormat::BF16);
    assert_eq!(recipe.name, "glm-5.3-flash,layers=24,experts=16,format=bf16,seed=9");
    for (text, reason) in [
        ("glm-6", "there are glm-5.3-flash, llama-1b"),
        ("llama-1b,layers=17", "1 to 16"),
        ("llama-1b,layers", "1 to 16"),
        ("llama-1b,experts=2", "options are"),
        ("llama-1b,format=q3", "formats are F32"),
        ("llama-1b,seed=x", "whole number"),
        ("llama-1b,format=nvfp4", "GGUF"),
        ("llama-1b,", "options are"),
    ] {
        let error = text.parse::<Recipe>().unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}
