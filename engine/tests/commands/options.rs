//! Options of the environment: what they change, the line that echoes them, and what a wrong one is told.

use super::{bitwalk, fails, json, on_fixture, run, stderr};

const WORDS: [&str; 6] = ["--raw", "--prompt", "c", "--max-tokens", "4", "--json"];

#[test]
fn what_holds_is_echoed_at_start() {
    let said = stderr(&run(&mut on_fixture("generate", &WORDS)));
    let line = "bitwalk: options: act=exact kv=f16 experts=device ptx=auto graph=whole reseat=latch verify=1 checks=0";
    assert_eq!(said.lines().nth(1), Some(line), "{said}");
    let mut command = on_fixture("generate", &[&WORDS[..], &["--kv", "f32"]].concat());
    // The command line comes first.
    command.env("BITWALK_ACT", "i16").env("BITWALK_KV", "fp8").env("BITWALK_RESEAT", "patch");
    command.env("BITWALK_VERIFY", "0").env("BITWALK_CHECKS", "1").env("BITWALK_PTX", "compute_80");
    let object = json(&mut command);
    assert_eq!((&object["program"], &object["ptx"]), (&"i16/rows kv=f32".into(), &"compute_80".into()));
    let echo = "act=i16 kv=f32 experts=device ptx=compute_80 graph=whole reseat=patch verify=0 checks=1";
    assert_eq!(object["options"], echo);
    let said = stderr(&run(&mut command));
    assert_eq!(said.lines().nth(1), Some(format!("bitwalk: options: {echo}").as_str()), "{said}");
}

/// First replays are compared unless that is switched off; what is said does not change.
#[test]
fn first_replays_are_verified_by_default() {
    let verified = json(&mut on_fixture("generate", &WORDS));
    assert_eq!((&verified["captures"], &verified["verified"]), (&1.into(), &1.into()));
    let without = json(on_fixture("generate", &WORDS).env("BITWALK_VERIFY", "0"));
    assert_eq!((&without["captures"], &without["verified"]), (&1.into(), &0.into()));
    assert_eq!(verified["ids"], without["ids"]);
}

#[test]
fn nothing_is_captured_when_graphs_are_off() {
    let of =
        |words: &[&str]| json(on_fixture("generate", &[&WORDS, words].concat()).env("BITWALK_GRAPH", "0"));
    let (off, asked) = (of(&[]), of(&["--graph"]));
    assert_eq!((&off["decode"], &off["captures"], &off["replays"]), (&"eager".into(), &0.into(), &0.into()));
    assert_eq!((&asked["decode"], &asked["captures"]), (&"graph".into(), &1.into()));
    assert_eq!(off["ids"], asked["ids"]);
}

/// All checks of the simulated device, over prompt, eager walks and replays with their verification.
#[test]
fn checked_runs_say_the_same() {
    let plain = json(&mut on_fixture("generate", &WORDS));
    let checked = json(on_fixture("generate", &WORDS).env("BITWALK_CHECKS", "1"));
    assert_eq!(plain["ids"], checked["ids"]);
}

#[test]
fn a_wrong_value_names_variable_value_and_choices() {
    for verb in ["generate", "chat", "plan", "bench"] {
        for (variable, value, said) in [
            ("BITWALK_ACT", "int3", "BITWALK_ACT is `int3`: it may be exact, i16"),
            ("BITWALK_DEVICE", "gpu", "BITWALK_DEVICE is `gpu`: it may be auto, cuda, cuda:N, sim, sim:N"),
            ("BITWALK_VERIFY", "yes", "BITWALK_VERIFY is `yes`: it may be 1, 0"),
            ("BITWALK_RESEAT", "", "BITWALK_RESEAT is ``: it may be latch, patch, recapture"),
            ("BITWALK_VERFIY", "0", "BITWALK_VERFIY is set, and there is no such option"),
        ] {
            let words = if verb == "generate" { &WORDS[..] } else { &[] };
            fails(on_fixture(verb, words).env(variable, value), 2, said);
        }
    }
    fails(bitwalk(&["inspect", super::FIXTURE]).env("BITWALK_KV", "f12"), 2, "BITWALK_KV is `f12`");
    // Also where the command line has the option: a variable that cannot be read is never passed over.
    fails(on_fixture("plan", &["--act", "exact"]).env("BITWALK_ACT", "x"), 2, "BITWALK_ACT is `x`");
    fails(
        bitwalk(&["logits", "--ids", "1", "--out", "x"]).env("BITWALK_MODEL", ""),
        2,
        "BITWALK_MODEL is ``",
    );
}
