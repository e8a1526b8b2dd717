//! What a checkpoint declares about its quantisation, and what of it cannot be run.
//!
//! Encodings are told by the tensors themselves ([`LinearWeight`](crate::format::LinearWeight)); the declaration is read to
//! refuse by name what the tensors do not show: another algorithm, another group size, scales stored swizzled.

use std::path::Path;

use serde_json::Value;

use crate::format::FormatError;

/// ModelOpt's algorithms whose linear layers are of the encodings that run.
const ALGORITHMS: [&str; 4] = ["NVFP4", "W4A16_NVFP4", "FP8_PB_WO", "MIXED_PRECISION"];
/// compressed-tensors' formats of the same.
const FORMATS: [&str; 3] = ["nvfp4-pack-quantized", "float-quantized", "mixed-precision"];

/// Checks a declaration, the value of `quantization_config` in `config.json` or the whole of `hf_quant_config.json`.
pub(super) fn check(path: &Path, prefix: &str, declared: &Value) -> Result<(), FormatError> {
    let error = |field: &str, reason: String| FormatError::Config {
        path: path.into(),
        field: if field.is_empty() { prefix.into() } else { format!("{prefix}.{field}") },
        reason,
    };
    if let Some(what) = swizzled(declared) {
        return Err(error(
            "",
            format!("declares {what}: swizzled block scales are not supported; export them in rows"),
        ));
    }
    let known = |field: &str, list: &[&str]| match declared.get(field).and_then(Value::as_str) {
        Some(name) if !list.iter().any(|known| known.eq_ignore_ascii_case(name)) => {
            Err(error(field, format!("is {name:?}, which bitwalk does not run; it runs {}", list.join(", "))))
        }
        _ => Ok(()),
    };
    known("quant_method", &["modelopt", "compressed-tensors", "fp8"])?;
    known("quant_algo", &ALGORITHMS)?;
    known("format", &FORMATS)?;
    let group = |field: &str, value: Option<&Value>, bits: Option<&Value>| match value.and_then(Value::as_u64)
    {
        Some(size) if size != 16 && bits.is_none_or(|bits| bits == 4) => {
            Err(error(field, format!("is {size}, but NVFP4 has a scale for each 16 elements")))
        }
        _ => Ok(()),
    };
    group("group_size", declared.get("group_size"), Some(&Value::from(4)))?;
    if let Some(Value::Object(groups)) = declared.get("config_groups") {
        for (name, settings) in groups {
            let Some(weights) = settings.get("weights").filter(|weights| !weights.is_null()) else {
                continue;
            };
            let field = |field: &str| format!("config_groups.{name}.weights.{field}");
            let bits = weights.get("num_bits");
            if let Some(kind) = weights.get("type").and_then(Value::as_str).filter(|&kind| kind != "float") {
                return Err(error(&field("type"), format!("is {kind:?}; weights of type \"float\" are run")));
            }
            if bits.is_some_and(|bits| bits != 4 && bits != 8) {
                return Err(error(&field("num_bits"), "is neither 4 (NVFP4) nor 8 (F8_E4M3)".into()));
            }
            group(&field("group_size"), weights.get("group_size"), bits)?;
            block(&error, &field("block_structure"), weights.get("block_structure"))?;
        }
    }
    block(&error, "weight_block_size", declared.get("weight_block_size"))
}

fn block(
    error: &dyn Fn(&str, String) -> FormatError,
    field: &str,
    value: Option<&Value>,
) -> Result<(), FormatError> {
    match value {
        Some(Value::Array(sizes)) if sizes.iter().any(|size| size != 128) || sizes.len() != 2 => {
            Err(error(field, "is not [128, 128], the blocks of F8_E4M3 that are supported".into()))
        }
        _ => Ok(()),
    }
}

/// Checks the metadata in the header of a safetensors file.
pub(super) fn check_metadata<'a>(
    path: &Path,
    metadata: impl Iterator<Item = (&'a String, &'a String)>,
) -> Result<(), FormatError> {
    for (key, text) in metadata {
        let error = |reason: String| FormatError::Config {
            path: path.into(),
            field: format!("__metadata__.{}", key.chars().take(80).collect::<String>()),
            reason,
        };
        // Some writers put JSON into the string.
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()));
        if let Some(what) = swizzled(&serde_json::json!({ key: value })) {
            let reason =
                format!("declares {what}: swizzled block scales are not supported; export them in rows");
            return Err(error(reason));
        }
        if key == "_quantization_metadata" {
            let reason =
                "marks a file written for ComfyUI, whose NVFP4 scales are swizzled; that is not supported";
            return Err(error(reason.into()));
        }
    }
    Ok(())
}

/// What in a declaration says that scales are swizzled, if anything does: a key that speaks of it with a value that does
/// not deny it, or a layout of scales other than rows.
fn swizzled(value: &Value) -> Option<String> {
    match value {
        Value::Object(object) => object.iter().find_map(|(key, value)| {
            let name = key.to_ascii_lowercase();
            let text = value.as_str().map(str::to_ascii_lowercase);
            let plain = match value {
                Value::Null | Value::Bool(false) => true,
                Value::Number(number) => number.as_f64() == Some(0.0),
                Value::Array(_) | Value::Object(_) => return swizzled(value),
                Value::Bool(true) => false,
                Value::String(_) => text.as_deref().is_some_and(is_rows),
            };
            let layout = name.contains("scale") && name.contains("layout");
            let speaks = name.contains("swizzl") && !name.contains("unswizzl");
            let said = text
                .as_deref()
                .is_some_and(|text| text.contains("swizzl") && !text.contains("unswizzl") && !is_rows(text));
            ((speaks || layout) && !plain || said).then(|| {
                let shown: String = value.to_string().chars().take(60).collect();
                format!("{key} = {shown}")
            })
        }),
        Value::Array(entries) => entries.iter().find_map(swizzled),
        _ => None,
    }
}

/// Words for scales in the order of the rows.
fn is_rows(text: &str) -> bool {
    const WORDS: [&str; 14] = [
        "",
        "0",
        "no",
        "none",
        "false",
        "off",
        "linear",
        "row",
        "rows",
        "row_major",
        "row-major",
        "rowmajor",
        "no_swizzle",
        "plain",
    ];
    WORDS.contains(&text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn declarations_that_run() {
        for declared in [
            json!({"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": null}),
            json!({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}),
            json!({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}),
            json!({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {"group_0":
                {"weights": {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"}}}}),
            json!({"swizzle": false, "scale_layout": "row_major", "is_swizzled": "none"}),
        ] {
            check(Path::new("c.json"), "q", &declared).unwrap_or_else(|error| panic!("{declared}: {error}"));
        }
    }

    #[test]
    fn declarations_that_do_not() {
        for (declared, field, reason) in [
            (json!({"quant_algo": "INT4_AWQ"}), "q.quant_algo", "INT4_AWQ"),
            (json!({"quant_method": "gptq"}), "q.quant_method", "gptq"),
            (json!({"format": "mxfp4-pack-quantized"}), "q.format", "mxfp4-pack-quantized"),
            (json!({"quant_algo": "NVFP4", "group_size": 32}), "q.group_size", "32"),
            (json!({"weight_block_size": [64, 64]}), "q.weight_block_size", "[128, 128]"),
            (
                json!({"config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}}}),
                "q.config_groups.g.weights.type",
                "int",
            ),
            (json!({"scales": {"swizzled": true}}), "q", "swizzled = true"),
            (json!({"scale_layout": "128x4"}), "q", "128x4"),
            (json!({"layout": "SWIZZLE_32_4_4"}), "q", "swizzled block scales are not supported"),
        ] {
            let error = check(Path::new("c.json"), "q", &declared).unwrap_err().to_string();
            assert!(error.starts_with(&format!("c.json: field `{field}`: ")), "{error}");
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn metadata_of_files_is_looked_through() {
        let metadata = |key: &str, text: &str| {
            let pair = (key.to_string(), text.to_string());
            check_metadata(Path::new("m.safetensors"), [(&pair.0, &pair.1)].into_iter())
        };
        metadata("format", "pt").unwrap();
        metadata("is_swizzled_scales", "False").unwrap();
        for (key, text) in [
            ("is_swizzled_scales", "True"),
            ("weight.context", r#"{"is_swizzled_scales": true}"#),
            ("_quantization_metadata", "{}"),
        ] {
            let error = metadata(key, text).unwrap_err().to_string();
            assert!(error.contains("swizzled") && error.contains(key), "{error}");
        }
    }
}
