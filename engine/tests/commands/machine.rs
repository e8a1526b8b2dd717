//! `--json` of every command: it parses, and holds the right fields with the right values.

use super::{FIXTURE, ids, json, on_fixture, text};

/// Keys that every command which runs a model prints.
pub fn about(object: &serde_json::Value) {
    assert_eq!(object["model"], FIXTURE);
    assert_eq!(object["device"], "sim:0");
    assert_eq!(object["device_name"], "ptx-sim");
    assert_eq!(object["program"], "exact/rows kv=f16");
    assert_eq!(object["ptx"], "compute_90");
    assert!(object["load_s"].as_f64().unwrap() > 0.0);
    let load = &object["load"];
    // Every tensor of the fixture, and the kernels that a walk needs.
    let file = bitwalk::format::gguf::GgufFile::open(FIXTURE).unwrap();
    let tensors: u64 = bitwalk::format::TensorSource::tensors(&file).iter().map(|info| info.bytes()).sum();
    assert_eq!(load["stored_bytes"], tensors);
    for key in ["open_file_s", "open_devices_s", "weights_s", "kernels", "kernels_s"] {
        assert!(load[key].as_f64().is_some_and(|value| value >= 0.0), "{key}: {load}");
    }
    assert!(load["kernels"].as_u64().unwrap() > 5, "{load}");
}

#[test]
fn generate() {
    let words = ["--raw", "--prompt", "c", "--max-tokens", "5", "--json"];
    let object = json(&mut on_fixture("generate", &words));
    about(&object);
    assert_eq!(object["decode"], "graph");
    assert_eq!(object["finish"], "length");
    assert_eq!((ids(&object["prompt_ids"]).len(), ids(&object["ids"]).len()), (1, 5));
    for (key, value) in
        [("cached", 5), ("walks", 4), ("synchronisations", 5), ("captures", 1), ("replays", 4)]
    {
        assert_eq!(object[key], value, "{key}");
    }
    for key in ["prompt_s", "prompt_tok_s", "decode_s", "ms_per_walk", "device_bytes"] {
        assert!(object[key].as_f64().unwrap() > 0.0, "{key}");
    }
    let object = json(&mut on_fixture("generate", &[&words[..], &["--eager", "--act", "i16"]].concat()));
    assert_eq!((&object["decode"], &object["captures"]), (&"eager".into(), &0.into()));
    assert_eq!(object["program"], "i16/rows kv=f16");
}

#[test]
fn plan() {
    let object = json(&mut on_fixture("plan", &["--json"]));
    about(&object);
    let launches = object["launches"].as_array().unwrap();
    // Three layers, between what comes before and after them.
    let layers: Vec<Option<u64>> = launches.iter().map(|launch| launch["layer"].as_u64()).collect();
    assert_eq!((layers.first(), layers.last()), (Some(&None), Some(&None)));
    let inner: Vec<u64> = layers.iter().flatten().copied().collect();
    assert!(inner.is_sorted() && inner.first() == Some(&0) && inner.last() == Some(&2), "{layers:?}");
    for launch in launches {
        assert!(launch["kernel"].as_str().unwrap().len() > 2 && launch["what"].is_string(), "{launch}");
        for key in ["grid", "block"] {
            let size = ids(&launch[key]);
            assert!(size.len() == 3 && size.iter().all(|&n| n > 0), "{launch}");
        }
        assert_eq!(launch["captured"], true);
        assert!(launch["shared_bytes"].is_u64());
    }
    for key in ["read_bytes", "write_bytes", "flops"] {
        let sum: u64 = launches.iter().map(|launch| launch[key].as_u64().unwrap()).sum();
        assert_eq!(object[key], sum, "{key}");
        assert!(sum > 0);
    }
    // At least every weight is read, but for the norms' the head is the largest: 1024 rows of 96 in Q8_0, its input,
    // and the weights of the final norm, which is part of it.
    let head = launches.iter().find(|launch| launch["what"] == "head").unwrap();
    assert_eq!(head["read_bytes"], 1024 * 96 / 32 * 34 + 2 * 96 * 4);
    assert_eq!(head["write_bytes"], 1024 * 4);
    assert_eq!((&object["attention"], &object["n_splits"]), (&"attn_split_f16_64".into(), &1.into()));
    assert!(object["refusal"].is_null());
    // A draw is two launches more.
    let drawn = json(&mut on_fixture("plan", &["--json", "--temp", "1"]));
    assert_eq!(drawn["launches"].as_array().unwrap().len(), launches.len() + 2);
}

/// The table has a row a launch, with the same words; layers that are alike would be one group.
#[test]
fn the_plans_table_is_its_json() {
    let object = json(&mut on_fixture("plan", &["--json"]));
    let launches = object["launches"].as_array().unwrap();
    let table = text(&mut super::bitwalk(&["plan", FIXTURE]));
    let rows: Vec<&str> = table.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    assert_eq!(rows.len(), launches.len());
    for (row, launch) in rows.iter().zip(launches) {
        let words: Vec<&str> = row.split_whitespace().collect();
        assert!(words.contains(&launch["kernel"].as_str().unwrap()), "{row}");
        assert_eq!(words.last(), Some(&"captured"), "{row}");
        assert!(words.contains(&&launch["read_bytes"].to_string()[..]), "{row}");
        // Sizes of one leave off at the end.
        let grid = ids(&launch["grid"]).iter().map(u64::to_string).collect::<Vec<_>>().join("×");
        let grid = grid.trim_end_matches("×1");
        assert!(words.contains(&grid), "{row}: no grid {grid}");
        assert_eq!(words[0].parse().ok(), launch["layer"].as_u64(), "{row}");
    }
    assert!(table.ends_with(&format!("captured as one graph of {} nodes\n", launches.len())), "{table}");
}

#[test]
fn logits() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("logits.safetensors");
    let path = out.to_str().unwrap();
    let words = ["--ids", "0", "--steps", "9", "--out", path, "--kv", "f32", "--json"];
    for decode in ["--eager", "--graph"] {
        let object = json(&mut on_fixture("logits", &[&words[..], &[decode]].concat()));
        assert_eq!(object["program"], "exact/rows kv=f32");
        assert_eq!(ids(&object["ids"]), super::golden_ids()[..10], "{decode}");
        assert_eq!((&object["vocab"], &object["out"]), (&1024.into(), &path.into()));
        assert_eq!(object["replays"], if decode == "--graph" { 9 } else { 0 });
        let bytes = std::fs::read(&out).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(file.tensor("logits").unwrap().shape(), [10, 1024]);
    }
    let said = text(&mut on_fixture("logits", &words[..8]));
    assert!(said.starts_with(&format!("{path}: 10 rows of 1024 logits; ids [138, 237,")), "{said}");
}
