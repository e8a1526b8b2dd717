//! The same matrix in several encodings.

use bitwalk::format::{LinearWeight, TensorSource, WeightEncoding};
use bitwalk::kernel::TensorFormat;
use safetensors::Dtype;

use super::{Pieces, floats, names};

const STEM: &str = "model.language_model.layers.4.mlp.experts.7.down_proj";

fn name(suffix: &str) -> String {
    format!("{STEM}.{suffix}")
}

/// The NVFP4 checkpoint with the names and the divisor of compressed-tensors.
fn compressed_tensors() -> Pieces {
    let mut pieces = Pieces::read("glm5-next-tiny-nvfp4");
    let stems: Vec<String> = pieces
        .tensors
        .keys()
        .filter_map(|name| name.strip_suffix(".weight_scale_2"))
        .map(String::from)
        .collect();
    for stem in stems {
        let packed = pieces.tensors.remove(&format!("{stem}.weight")).unwrap();
        pieces.tensors.insert(format!("{stem}.weight_packed"), packed);
        let (_, _, scale_2) = pieces.tensors.remove(&format!("{stem}.weight_scale_2")).unwrap();
        let multiplier = f32::from_le_bytes(scale_2.try_into().unwrap());
        let divisor = (1.0 / multiplier).to_le_bytes().to_vec();
        pieces.tensors.insert(format!("{stem}.weight_global_scale"), (Dtype::F32, vec![1], divisor));
        if let Some(input) = pieces.tensors.remove(&format!("{stem}.input_scale")) {
            pieces.tensors.insert(format!("{stem}.input_global_scale"), input);
        }
    }
    pieces.config["quantization_config"] = serde_json::json!({
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights":
            {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"}}},
        "ignore": ["lm_head"],
    });
    pieces
}

#[test]
fn multiplier_and_divisor_give_the_same_bits() {
    let (modelopt, compressed) = (Pieces::read("glm5-next-tiny-nvfp4"), compressed_tensors());
    assert!(compressed.check().unwrap().is_empty());
    let (modelopt, compressed) = (modelopt.source().unwrap(), compressed.source().unwrap());
    let mut compared = 0;
    for info in modelopt.tensors().iter().filter(|info| info.name.ends_with(".weight_scale_2")) {
        let stem = info.name.strip_suffix(".weight_scale_2").unwrap();
        let a = LinearWeight::find(&modelopt, stem).unwrap().unwrap();
        let b = LinearWeight::find(&compressed, stem).unwrap().unwrap();
        assert_eq!((a.rows(), a.cols(), a.format()), (b.rows(), b.cols(), b.format()));
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(
            bits(a.dequantise(&modelopt).unwrap()),
            bits(b.dequantise(&compressed).unwrap()),
            "{stem}"
        );
        compared += 1;
    }
    assert_eq!(compared, 315);
}

#[test]
fn weights_alone_need_no_input_scale() {
    let mut pieces = Pieces::read("glm5-next-tiny-nvfp4");
    pieces.tensors.retain(|name, _| !name.ends_with(".input_scale"));
    pieces.config["quantization_config"]["quant_algo"] = "W4A16_NVFP4".into();
    assert!(pieces.check().unwrap().is_empty());
    let source = pieces.source().unwrap();
    let weight = LinearWeight::find(&source, STEM).unwrap().unwrap();
    assert!(matches!(weight.encoding(), WeightEncoding::Nvfp4 { input_scale: None, .. }));
}

#[test]
fn f8_with_scales_of_blocks_is_expanded_to_f32() {
    let mut pieces = Pieces::read("glm5-next-tiny");
    let bf16 = floats(&pieces.source().unwrap(), &name("weight"));
    // Each value is e4m3 · 2⁻⁷ rounded: only whether the bytes are read as they are meant matters here.
    let codes: Vec<u8> =
        bf16.iter().map(|value| bitwalk::device::F8E4M3::from_f32(value * 128.0).0).collect();
    let scale = 0.007_654_321_f32;
    let wanted: Vec<f32> = codes
        .iter()
        .map(|&code| (bitwalk::device::F8E4M3(code).to_f64() * f64::from(scale)) as f32)
        .collect();
    let shape = pieces.tensors[&name("weight")].1.clone();
    pieces.tensors.insert(name("weight"), (Dtype::F8_E4M3, shape, codes));
    pieces.tensors.insert(name("weight_scale_inv"), (Dtype::F32, vec![1, 1], scale.to_le_bytes().to_vec()));
    assert!(pieces.check().unwrap().is_empty());
    let source = pieces.source().unwrap();
    let weight = LinearWeight::require(&source, STEM, [128, 64]).unwrap();
    assert!(matches!(weight.encoding(), WeightEncoding::F8Block128 { .. }));
    assert_eq!(weight.format(), TensorFormat::F32);
    assert_eq!(weight.dequantise(&source).unwrap(), wanted);
    let mut plane = vec![0u8; 4 * 128 * 64];
    weight.write_planes(&source, &mut [&mut plane]).unwrap();
    assert_eq!(plane, wanted.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
}

#[test]
fn wrong_scales_are_refused_by_name() {
    let original = Pieces::read("glm5-next-tiny-nvfp4");
    type Change = fn(&mut Pieces);
    let cases: [(Change, &[&str]); 9] = [
        (
            // Half of them.
            |p| {
                let (_, shape, data) = p.tensors.get_mut(&name("weight_scale")).unwrap();
                shape[1] /= 2;
                data.truncate(data.len() / 2);
            },
            &["down_proj.weight_scale", "[128, 2]", "[128, 4]"],
        ),
        (
            // As tensor cores want them: rows padded to 128 × 4 and flattened.
            |p| {
                let data = vec![0x38; 128 * 4];
                p.tensors.insert(name("weight_scale"), (Dtype::F8_E4M3, vec![512], data));
            },
            &["down_proj.weight_scale", "swizzled"],
        ),
        (
            |p| drop(p.tensors.remove(&name("weight_scale"))),
            &["down_proj.weight_scale", "is missing", "block scales"],
        ),
        (
            |p| drop(p.tensors.remove(&name("weight_scale_2"))),
            &["down_proj.weight_scale_2", "is missing", "global scale"],
        ),
        (
            |p| {
                let zero = f32::INFINITY.to_le_bytes().to_vec();
                p.tensors.insert(name("weight_scale_2"), (Dtype::F32, vec![], zero));
            },
            &["down_proj.weight_scale_2", "inf"],
        ),
        (
            |p| {
                p.tensors.insert(name("weight_global_scale"), (Dtype::F32, vec![1], vec![0; 4]));
            },
            &["down_proj.weight_global_scale", "no use"],
        ),
        (
            |p| {
                p.tensors.insert(name("pre_quant_scale"), (Dtype::BF16, vec![64], vec![0; 128]));
            },
            &["down_proj.pre_quant_scale", "no use"],
        ),
        (
            |p| {
                let data = vec![0; 128 * 64];
                p.tensors.insert(name("weight"), (Dtype::F8_E4M3, vec![128, 64], data));
            },
            &["down_proj.weight_scale", "F32 or BF16"],
        ),
        (
            |p| {
                p.tensors.insert(name("weight"), (Dtype::BF16, vec![128, 64], vec![0; 128 * 128]));
            },
            &["down_proj.weight_scale", "no use"],
        ),
    ];
    for (i, (change, parts)) in cases.into_iter().enumerate() {
        let mut pieces = original.clone();
        change(&mut pieces);
        let error = pieces.check().expect_err(&format!("case {i}"));
        names(&error, parts);
    }
}

#[test]
fn declared_swizzling_is_refused_by_name() {
    let mut pieces = Pieces::read("glm5-next-tiny-nvfp4");
    pieces.config["quantization_config"]["scale_layout"] = "swizzled_128x4".into();
    names(
        &pieces.check().unwrap_err(),
        &["config.json", "quantization_config", "swizzled_128x4", "not supported"],
    );
}
