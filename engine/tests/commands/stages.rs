//! `--devices` and `--stages`: a model over several devices says what it says on one.

use std::path::Path;

use safetensors::SafeTensors;
use serde_json::json;

use super::{FIXTURE, bitwalk, fails, ids, json, on_fixture, run, stderr, text};

const GLM5: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gates/fixtures/glm5-next-tiny");

/// All tensors of the file that `bitwalk logits` writes, by name.
fn tensors(path: &Path) -> Vec<(String, Vec<u8>)> {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut all: Vec<_> =
        file.tensors().into_iter().map(|(name, view)| (name, view.data().to_vec())).collect();
    all.sort();
    all
}

/// What `bitwalk logits` writes of a model, and its JSON.
fn logits(model: &str, words: &[&str]) -> (Vec<(String, Vec<u8>)>, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("logits.safetensors");
    let fixed =
        ["logits", "--model", model, "--ids", "101,108,115,122,129", "--steps", "9", "--json", "--out"];
    let object = json(bitwalk(&fixed).arg(&out).args(words));
    (tensors(&out), object)
}

#[test]
fn logits_of_two_stages_are_those_of_one() {
    for model in [FIXTURE, GLM5] {
        let (one, about) = logits(model, &[]);
        assert_eq!(about["stages"].as_array().map(Vec::len), Some(1));
        assert_eq!(one.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["ids", "logits"]);
        for words in [
            &["--devices", "0,1", "--stages", "2"][..],
            &["--devices", "sim:2", "--graph"],
            &["--stages", "2", "--graph"],
            &["--devices", "sim:2", "--stages", "3", "--act", "exact"],
        ] {
            let (found, about) = logits(model, words);
            assert!(found == one, "{model} {words:?}: other logits");
            let stages = about["stages"].as_array().unwrap();
            let devices = if words[0] == "--stages" { "sim:0" } else { "sim:0 + sim:1" };
            assert_eq!(about["device"], devices);
            // The layers follow on each other, on the devices in turn.
            let mut next = json!(0);
            for (index, stage) in stages.iter().enumerate() {
                assert_eq!(stage["layers"][0], next, "{stages:?}");
                next = stage["layers"][1].clone();
                let on = if devices == "sim:0" { 0 } else { index % 2 };
                assert_eq!(stage["device"], format!("sim:{on}"));
                assert!(stage["weight_bytes"].as_u64().unwrap() > 0);
            }
            if words.contains(&"--graph") {
                // A graph a stage and step.
                assert_eq!((&about["captures"], &about["replays"]), (&json!(2), &json!(18)));
            }
        }
    }
}

/// The other program too, against itself.
#[test]
fn integer_activations_do_not_depend_on_the_split() {
    let (one, _) = logits(FIXTURE, &["--act", "i16"]);
    let (two, about) = logits(FIXTURE, &["--act", "i16", "--devices", "sim:2", "--graph"]);
    assert!(one == two && about["program"] == "i16/rows kv=f16");
}

#[test]
fn what_is_dumped_comes_from_every_stage() {
    let words = ["--dump", "routes,indexer,streams,hc", "--all-positions"];
    let (one, _) = logits(GLM5, &words);
    let (two, _) = logits(GLM5, &[&words[..], &["--devices", "sim:2"]].concat());
    assert!(one.len() > 12, "{}", one.len());
    let differ: Vec<&str> = one.iter().zip(&two).filter(|(a, b)| a != b).map(|(a, _)| a.0.as_str()).collect();
    assert!(one.len() == two.len() && differ.is_empty(), "{differ:?}");
}

#[test]
fn text_is_the_same_and_so_are_draws() {
    for sampling in [&[][..], &["--temp", "0.8", "--seed", "3", "--repeat-penalty", "1.1"]] {
        let words = [&["--raw", "--prompt", "c", "--max-tokens", "12", "--json"], sampling].concat();
        let one = json(&mut on_fixture("generate", &words));
        for split in [
            &["--devices", "sim:3"][..],
            &["--devices", "0,1", "--eager"],
            &["--stages", "2", "--queue", "4"],
        ] {
            let object = json(&mut on_fixture("generate", &[&words, split].concat()));
            assert_eq!((&object["text"], &object["ids"]), (&one["text"], &one["ids"]), "{split:?}");
            assert_eq!(ids(&object["ids"]).len(), 12);
        }
    }
}

#[test]
fn a_conversation_keeps_its_cache_over_stages() {
    let talk = |words: &[&str]| {
        let output =
            super::run_with(&mut on_fixture("chat", &[&["--max-tokens", "6"], words].concat()), "ab\ncd\n");
        assert!(output.status.success(), "{}", stderr(&output));
        super::stdout(&output)
    };
    assert_eq!(talk(&[]), talk(&["--devices", "sim:2"]));
}

#[test]
fn plan_prints_every_stage() {
    let whole = json(&mut on_fixture("plan", &["--json"]));
    let split = json(&mut on_fixture("plan", &["--json", "--devices", "sim:2"]));
    let layers = |object: &serde_json::Value| -> Vec<u64> {
        let mut layers: Vec<u64> = object["launches"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|launch| launch["layer"].as_u64())
            .collect();
        layers.dedup();
        layers
    };
    assert_eq!((layers(&whole), layers(&split)), (vec![0, 1, 2], vec![0, 1, 2]));
    let launches = split["launches"].as_array().unwrap();
    let stages: Vec<u64> = launches.iter().map(|launch| launch["stage"].as_u64().unwrap()).collect();
    assert!(stages.is_sorted() && stages.contains(&0) && stages.contains(&1));
    for word in ["take token", "hop", "hand token over"] {
        assert!(launches.iter().any(|launch| launch["what"] == word), "{word}");
    }
    // Weights are divided, not copied; a tied head is the embedding once more, on the last device.
    let bytes = |object: &serde_json::Value| -> Vec<u64> {
        object["stages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|stage| stage["weight_bytes"].as_u64().unwrap())
            .collect()
    };
    let (one, two) = (bytes(&whole), bytes(&split));
    assert!(two.len() == 2 && two.iter().sum::<u64>() >= one[0] && two.iter().all(|&part| part < one[0]));

    let said = text(&mut on_fixture("plan", &["--devices", "sim:2"]));
    let heads: Vec<&str> =
        said.lines().filter(|line| line.starts_with("stage ") && line.contains(" on ")).collect();
    assert!(heads.len() == 2 && heads[0].starts_with("stage 0 on sim:0: layers 0–"), "{heads:?}");
    assert!(heads[1].contains("on sim:1") && heads[1].contains("–2 of 3"), "{heads:?}");
    assert!(said.contains("stage 1: captured as one graph of"), "{said}");
}

#[test]
fn links_are_checked_and_said() {
    let output = run(&mut on_fixture("plan", &["--devices", "sim:3"]));
    assert!(stderr(&output).contains("6 links checked, all direct"), "{}", stderr(&output));
    let alone = run(&mut on_fixture("plan", &["--devices", "sim:1"]));
    assert!(!stderr(&alone).contains("links"), "{}", stderr(&alone));
}

#[test]
fn bench_counts_all_stages() {
    let words = ["--prompt-tokens", "4", "--tokens", "4", "--json"];
    let object = json(&mut on_fixture("bench", &[&words[..], &["--devices", "sim:2"]].concat()));
    let plan = json(&mut on_fixture("plan", &["--devices", "sim:2", "--json"]));
    assert_eq!(object["programs"][0]["launches_per_token"], plan["launches"].as_array().unwrap().len());
}

#[test]
fn what_cannot_be_is_said() {
    for (words, code, said) in [
        (&["--stages", "4"][..], 1, "3 layers cannot be split into 4 stages"),
        (&["--devices", "sim:2", "--stages", "1"], 2, "--stages 1 leaves 1 of 2 devices without a stage"),
        (&["--devices", "0,99"], 1, "there is no device sim:99"),
        (&["--devices", "sim:64"], 1, "there is no device sim:16"),
    ] {
        fails(&mut on_fixture("plan", words), code, said);
    }
    for (words, said) in [
        (["--stages", "0"], "0 is not in 1..=64"),
        (["--stages", "two"], "invalid digit"),
        (["--devices", "0,0"], "it has device 0 twice"),
        (["--devices", "sim:0"], "0 simulated devices are not 1 to 64"),
        (["--devices", "gpu:0"], "`gpu` is no kind of device"),
    ] {
        let output = run(&mut on_fixture("plan", &words));
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(stderr(&output).contains(said), "{words:?}: {}", stderr(&output));
    }
}
