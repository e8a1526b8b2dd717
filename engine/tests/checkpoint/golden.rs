//! The golden checkpoints: configuration, tensors, and NVFP4 against its formula in float64.

use bitwalk::config::Family;
use bitwalk::config::glm5::{FfnKind, Glm5Config, IndexerKind, LayerKind, MixerKind, TensorKind, tensors};
use bitwalk::format::safetensors::SafetensorsSource;
use bitwalk::format::{DType, LinearWeight, TensorSource, WeightEncoding};
use bitwalk::kernel::TensorFormat;

use super::{floats, folder, open, within_limits};

fn source(name: &str) -> SafetensorsSource {
    SafetensorsSource::open(folder(name)).unwrap()
}

#[test]
fn the_configuration_is_that_of_the_file() {
    let source = source("glm5-next-tiny");
    let Family::Glm5(config) = source.family().unwrap() else { panic!("another family") };
    let kda = |ffn| LayerKind { mixer: MixerKind::Kda, ffn };
    let mla = LayerKind { mixer: MixerKind::Mla { indexer: IndexerKind::Full }, ffn: FfnKind::Routed };
    let (dense, routed) = (kda(FfnKind::Dense), kda(FfnKind::Routed));
    let wanted = Glm5Config {
        vocab: 512,
        hidden: 128,
        layers: vec![dense, dense, dense, mla, routed, routed, routed, mla, routed],
        intermediate: 128,
        moe_intermediate: 64,
        experts: 16,
        experts_per_token: 4,
        shared_experts: 1,
        routed_scaling: 2.5,
        kda_heads: 4,
        kda_head_dim: 32,
        conv_kernel: 4,
        gate_lower_bound: Some(-5.0),
        heads: 4,
        q_lora: 64,
        kv_lora: 64,
        nope: 32,
        v_head: 32,
        index_heads: 4,
        index_dim: 32,
        index_topk: 32,
        index_kpool: 4,
        hc_mult: 4,
        hc_iters: 20,
        hc_eps: 1e-6,
        eps: 1e-5,
        swiglu_limit: Some(10.0),
        tied_head: false,
        context: 4096,
        eos: vec![],
    };
    assert_eq!(config, wanted);
    let error = source.config().unwrap_err().to_string();
    assert!(error.contains("glm5_next"), "{error}");
}

#[test]
fn every_tensor_is_there_and_none_besides() {
    for (name, file) in [
        ("glm5-next-tiny", "model.safetensors"),
        ("glm5-next-tiny-nvfp4", "model.safetensors"),
        ("glm5-variant", "model.safetensors"),
        ("glm5-variant-unbounded", "model.safetensors.index.json"),
    ] {
        let skipped = within_limits(8 << 20, || open(&folder(name))).unwrap();
        let wanted = if name == "glm5-variant" { (2, 2) } else { (0, 0) };
        assert_eq!((skipped.visual.0, skipped.prediction.0), wanted, "{name}: {skipped}");
        // The same by the path of the file.
        open(&folder(name).join(file)).unwrap();
    }
    // The list is as long as the checkpoint in plain types.
    let source = source("glm5-next-tiny");
    let listed: Vec<_> = tensors(&source.glm5().unwrap()).collect();
    assert_eq!(listed.len(), source.tensors().len());
    for tensor in &listed {
        assert_eq!(source.find(&tensor.name).unwrap().shape, tensor.shape, "{}", tensor.name);
    }
}

#[test]
fn nvfp4_has_the_values_of_its_formula() {
    let source = source("glm5-next-tiny-nvfp4");
    let config = source.glm5().unwrap();
    let e2m1 = |code: u8| {
        let magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
        if code & 8 == 0 { magnitude } else { -magnitude }
    };
    // By the definition of the format, not by the engine's own conversion.
    let e4m3 = |code: u8| {
        let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
        let magnitude =
            if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
        if code & 0x80 == 0 { magnitude } else { -magnitude }
    };
    let (mut matrices, mut moved, mut minus_zero) = (0, 0, false);
    for tensor in tensors(&config).filter(|tensor| tensor.kind == TensorKind::Linear) {
        let stem = tensor.name.strip_suffix(".weight").unwrap();
        let weight = LinearWeight::find(&source, stem).unwrap().unwrap();
        let WeightEncoding::Nvfp4 { global, input_scale, .. } = weight.encoding() else { continue };
        assert_eq!(weight.format(), TensorFormat::NVFP4);
        assert_eq!([weight.rows(), weight.cols()].as_slice(), tensor.shape);
        let packed = source.bytes(&tensor.name).unwrap();
        let scales = source.bytes(&format!("{stem}.weight_scale")).unwrap();
        let scale_2 = source.bytes(&format!("{stem}.weight_scale_2")).unwrap();
        let scale_2 = f32::from_le_bytes(scale_2.try_into().unwrap());
        let values = weight.dequantise(&source).unwrap();
        assert_eq!(values.len(), packed.len() * 2);
        for (i, &value) in values.iter().enumerate() {
            let code = packed[i / 2] >> (4 * (i % 2)) & 15;
            let exact = e2m1(code) * e4m3(scales[i / 16]) * f64::from(scale_2);
            // The global scale may be one unit in its last place off, at most 2⁻²³ of it, and a value is rounded once.
            let tolerance = exact.abs() * (2f64.powi(-23) + 2f64.powi(-24)) * (1.0 + 1e-6);
            assert!((f64::from(value) - exact).abs() <= tolerance, "{stem}[{i}]: {value}, not {exact}");
            if *global == scale_2 {
                assert_eq!(value.to_bits(), (exact as f32).to_bits(), "{stem}[{i}]");
            }
            minus_zero |= value == 0.0 && value.is_sign_negative();
        }
        matrices += 1;
        moved += u32::from(*global != scale_2);
        assert!(input_scale.is_some() == source.find(&format!("{stem}.input_scale")).is_some());
    }
    // Three matrices in each dense layer, expert and shared expert: 3·3 + 6·17·3.
    assert_eq!(matrices, 3 * 3 + 6 * 17 * 3);
    assert!(moved > 0 && moved < matrices / 4, "{moved} of {matrices} global scales moved");
    assert!(minus_zero, "the checkpoint has zeros of either sign");
}

#[test]
fn planes_hold_the_same_values() {
    let source = source("glm5-next-tiny-nvfp4");
    let stem = |part: &str| format!("model.language_model.layers.4.mlp.experts.7.{part}");
    // Stacked by rows as a loader does: gate and up have global scales of their own.
    let parts =
        ["gate_proj", "up_proj"].map(|part| LinearWeight::find(&source, &stem(part)).unwrap().unwrap());
    let (rows, cols) = (parts[0].rows() as usize, parts[0].cols() as usize);
    let (mut qs, mut scales, mut globals) =
        (vec![0; rows * cols], vec![0; 2 * rows * cols / 16], vec![0; 2 * rows * 4]);
    for (i, part) in parts.iter().enumerate() {
        let planes: &mut [&mut [u8]] = &mut [
            &mut qs[i * rows * cols / 2..][..rows * cols / 2],
            &mut scales[i * rows * cols / 16..][..rows * cols / 16],
            &mut globals[i * rows * 4..][..rows * 4],
        ];
        part.write_planes(&source, planes).unwrap();
    }
    let values = parts.map(|part| part.dequantise(&source).unwrap()).concat();
    let mut row = vec![0f32; cols];
    for r in 0..2 * rows {
        let global = f32::from_le_bytes(globals[4 * r..][..4].try_into().unwrap());
        let (qs, scales) = (&qs[r * cols / 2..][..cols / 2], &scales[r * cols / 16..][..cols / 16]);
        bitwalk::quant::dequantise_nvfp4(qs, scales, global, &mut row).unwrap();
        assert_eq!(row, values[r * cols..][..cols], "row {r}");
    }
}

#[test]
fn plain_weights_are_passed_through() {
    let source = source("glm5-next-tiny");
    let stem = "model.language_model.layers.0.self_attn.q_proj";
    let weight = LinearWeight::require(&source, stem, [128, 128]).unwrap();
    assert_eq!(weight.format(), TensorFormat::BF16);
    assert_eq!(
        weight.encoding(),
        &WeightEncoding::Plain { weight: format!("{stem}.weight"), dtype: DType::Bf16 }
    );
    let mut plane = vec![0; 128 * 128 * 2];
    weight.write_planes(&source, &mut [&mut plane]).unwrap();
    assert_eq!(plane, source.bytes(&format!("{stem}.weight")).unwrap());
    let error = LinearWeight::require(&source, stem, [128, 64]).unwrap_err().to_string();
    assert!(error.contains(stem) && error.contains("[128, 64]"), "{error}");
}

#[test]
fn both_spellings_of_a_global_scale_stand_for_the_same_values() {
    let file = |name: &str| {
        let bytes = std::fs::read(folder("nvfp4-spellings").join(format!("{name}.safetensors"))).unwrap();
        SafetensorsSource::from_bytes(name, bytes, serde_json::json!({})).unwrap()
    };
    let (modelopt, compressed, values) = (file("modelopt"), file("compressed-tensors"), file("values"));
    assert_eq!(values.tensors().len(), 12);
    for info in values.tensors() {
        let stem = info.name.as_str();
        let read = |source: &SafetensorsSource| {
            let weight = LinearWeight::require(source, stem, [info.rows(), info.cols()]).unwrap();
            weight.dequantise(source).unwrap()
        };
        let (a, b, wanted) = (read(&modelopt), read(&compressed), floats(&values, stem));
        for (i, &wanted) in wanted.iter().enumerate() {
            assert_eq!(a[i].to_bits(), b[i].to_bits(), "{stem}[{i}]");
            // Three roundings apart: of the reciprocal, of the product, and of the quotient that is wanted.
            let error = (f64::from(a[i]) - f64::from(wanted)).abs();
            let tolerance = 3.0 * 2f64.powi(-24) * f64::from(wanted).abs() * (1.0 + 1e-6);
            assert!(error <= tolerance, "{stem}[{i}]: {}, not {wanted}", a[i]);
        }
    }
}
