//! `bitwalk bench` and `bitwalk trace`: that what they print is there and fits together. Times are only compared with each other.

use serde_json::Value;

use super::machine::about;
use super::{FIXTURE, bitwalk, fails, json, on_fixture, text};

/// Figures of an arm that are numbers above 0.
#[track_caller]
fn arm(arm: &Value) {
    for key in ["ms_per_token", "ms_least", "ms_most", "tok_s", "prompt_tok_s"] {
        assert!(arm[key].as_f64().unwrap() > 0.0, "{key}: {arm}");
    }
    let figure = |key: &str| arm[key].as_f64().unwrap();
    assert!(figure("ms_least") <= figure("ms_per_token") && figure("ms_per_token") <= figure("ms_most"));
    // The simulated device's memory is the CPU's and its submitting thread the device: no shares.
    for key in ["percent_of_read_only", "submitting_cpu_share", "thread_cpu_share"] {
        assert!(arm[key].is_null(), "{key}: {arm}");
    }
}

#[test]
fn bench() {
    let words = ["--prompt-tokens", "4", "--tokens", "5", "--queue", "2", "--json"];
    let object = json(&mut on_fixture("bench", &words));
    about(&object);
    for (key, value) in [("prompt_tokens", 4), ("tokens", 5), ("queue", 2), ("repetitions", 1)] {
        assert_eq!(object[key], value, "{key}");
    }
    assert!(object["context"].is_null() && object["read_only_bytes_s"].is_null());
    let [program] = &object["programs"].as_array().unwrap()[..] else { panic!("{object}") };
    assert_eq!((&program["act"], &program["program"]), (&"exact".into(), &"exact/rows kv=f16".into()));
    let plan = json(&mut on_fixture("plan", &["--json"]));
    assert_eq!(program["launches_per_token"].as_u64(), plan["launches"].as_array().map(|l| l.len() as u64));
    arm(&program["eager"]);
    arm(&program["graph"]);
    for key in ["bytes_per_token", "device_bytes"] {
        assert!(program[key].as_u64().unwrap() > 0, "{key}");
    }
}

/// Two programs in one run have each their own figures, and a longer context reads more.
#[test]
fn bench_of_two_programs_at_a_context() {
    let words = ["--prompt-tokens", "2", "--tokens", "3", "--compare", "exact,i16", "--json"];
    let near = json(&mut on_fixture("bench", &words));
    let far = json(&mut on_fixture("bench", &[&words[..], &["--context", "200"]].concat()));
    assert_eq!((&near["context"], &far["context"]), (&Value::Null, &200.into()));
    for (index, act) in ["exact", "i16"].into_iter().enumerate() {
        let bytes = |object: &Value| {
            let program = &object["programs"][index];
            assert_eq!(program["act"], act);
            arm(&program["eager"]);
            arm(&program["graph"]);
            program["bytes_per_token"].as_u64().unwrap()
        };
        assert!(bytes(&far) > bytes(&near));
    }
    assert_eq!(near["programs"].as_array().unwrap().len(), 2);
    fails(&mut on_fixture("bench", &["--context", "100000"]), 1, "the model's context is");
}

#[test]
fn bench_as_a_table() {
    let said =
        text(&mut on_fixture("bench", &["--prompt-tokens", "2", "--tokens", "3", "--repetitions", "2"]));
    for row in ["eager exact ", "graph exact "] {
        let line = said.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("{said}"));
        let figures: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(figures.len() == 4 && figures.iter().all(|&figure| figure >= 0.0), "{line}");
    }
    assert!(said.starts_with("prompt 2 tokens, 3 decoded, 1 a synchronisation, repetitions: 2\n"), "{said}");
}

/// The table of several models: a row a program, its target met or not, and a row that cannot run says why.
#[test]
fn bench_of_several_models() {
    let folder = tempfile::tempdir().unwrap();
    let rows = serde_json::json!([
        { "name": "base", "model": FIXTURE, "programs": ["exact", "i16"], "floor_ms": 0.001, "target_ms": 1e9 },
        { "name": "far", "model": FIXTURE, "programs": ["exact"], "context": 128,
          "target_of": { "row": "base", "times": 1e-6 } },
        { "name": "absent", "model": "synthetic:no-such-shape", "programs": ["exact"] },
    ]);
    let file = folder.path().join("rows.json");
    std::fs::write(&file, rows.to_string()).unwrap();
    let words = ["bench", "--table", file.to_str().unwrap(), "--prompt-tokens", "2", "--tokens", "3"];
    let said = text(&mut bitwalk(&words));
    let lines: Vec<&str> = said.lines().collect();
    let columns = lines[0].matches('|').count();
    assert!(lines[..6].iter().all(|line| line.matches('|').count() == columns), "{said}");
    let met: Vec<&str> = lines[2..5].iter().map(|line| line.split('|').nth(12).unwrap().trim()).collect();
    assert_eq!(met, ["yes", "yes", "no"], "{said}");
    assert!(lines[5].contains("not run: ") && lines[5].contains("no-such-shape"), "{said}");
    // One row, for machines.
    let object = json(&mut bitwalk(&[&words[..], &["--rows", "far", "--json"]].concat()));
    let [row] = &object["rows"].as_array().unwrap()[..] else { panic!("{object}") };
    assert_eq!((&row["name"], &row["context"]), (&"far".into(), &128.into()));
    arm(&row["bench"]["graph"]);
    assert!(row["trace"]["launches"].as_u64().unwrap() > 0 && row["target_ms"].is_null());
    fails(&mut bitwalk(&[&words[..], &["--rows", "nowhere"]].concat()), 1, "nowhere");
}

/// The rows that are built in are models that exist, or will when their format does; read without running any.
#[test]
fn the_built_in_table_is_read() {
    fails(&mut bitwalk(&["bench", "--table", "--rows", "no such row"]), 1, "no row's name or model contains");
}

#[test]
fn a_synthetic_model_by_name_and_format() {
    let words = ["bench", "--synthetic", "smollm2-135m,layers=1", "--quant", "q8_0", "--prompt-tokens", "1"];
    let object = json(&mut bitwalk(&[&words[..], &["--tokens", "2", "--json"]].concat()));
    assert_eq!(object["model"], "synthetic:smollm2-135m,layers=1,format=q8_0");
    fails(&mut bitwalk(&["bench", "--quant", "q8_0"]), 2, "--synthetic");
}

#[test]
fn trace() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("token.json");
    let words = ["--prompt-tokens", "3", "--json", "--out", out.to_str().unwrap()];
    let object = json(&mut on_fixture("trace", &words));
    about(&object);
    let plan = json(&mut on_fixture("plan", &["--json", "--context", "64"]));
    let launches = plan["launches"].as_array().unwrap();
    assert_eq!(object["launches"], launches.len());
    let figure = |key: &str| object[key].as_f64().unwrap();
    assert!(figure("kernel_us") <= figure("token_us") && figure("busy_us") <= figure("extent_us"));
    // The whole is its parts, but for the rounding of nanoseconds to microseconds.
    assert!((figure("busy_us") + figure("idle_us") - figure("extent_us")).abs() < 1e-3);
    assert_eq!(object["overlaps_not_dependent"], 0);
    assert!(figure("opcodes") > 0.0 && object["untraced_us"].is_null());
    let families = object["families"].as_array().unwrap();
    let count: u64 = families.iter().map(|family| family["launches"].as_u64().unwrap()).sum();
    assert_eq!(count, launches.len() as u64);
    assert_eq!(object["longest"].as_array().unwrap().len(), 10);

    let file: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(file["otherData"]["clock"], object["clock"]);
    let events = file["traceEvents"].as_array().unwrap();
    let spans: Vec<&Value> = events.iter().filter(|event| event["cat"] == "launch").collect();
    let kernels = |key: &str, of: &[&Value]| of.iter().map(|v| v[key].clone()).collect::<Vec<_>>();
    assert_eq!(kernels("name", &spans), launches.iter().map(|l| l["kernel"].clone()).collect::<Vec<_>>());
    let mut last = 0.0;
    for (span, launch) in spans.iter().zip(launches) {
        let (start, duration) = (span["ts"].as_f64().unwrap(), span["dur"].as_f64().unwrap());
        assert!(start >= last && duration >= 0.0, "{span}");
        last = start + duration;
        for key in ["layer", "what", "grid", "block", "read_bytes", "write_bytes", "flops"] {
            assert_eq!(span["args"][key], launch[key], "{key}");
        }
    }
    assert!(last <= figure("token_us"));
}

#[test]
fn trace_as_a_summary() {
    let said = text(&mut on_fixture("trace", &["--eager", "--prompt-tokens", "2", "--context", "130"]));
    assert!(said.starts_with("one token, eager, "), "{said}");
    for words in ["by the host's clock", "gaps, ", "family ", "matvec ", "longest "] {
        assert!(said.contains(words), "{words}: {said}");
    }
    fails(&mut on_fixture("trace", &["--out", "/nowhere/trace.json"]), 1, "writing /nowhere/trace.json");
    fails(&mut on_fixture("trace", &["--context", "100000"]), 1, "the model's context is");
}
