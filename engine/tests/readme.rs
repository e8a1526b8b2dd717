//! The README's screens are what the commands print.
//!
//! A fenced block marked `console` holds commands behind `$ ` and what they print, standard error included. A line `…`
//! stands for any lines. Times and rates are masked, and so is the device: everything else must be equal.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;

const README: &str = include_str!("../../README.md");

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A command, and the lines that it prints.
struct Screen {
    command: String,
    output: Vec<String>,
}

/// The screens of all `console` blocks, in order.
fn screens(markdown: &str) -> Vec<Screen> {
    let mut screens: Vec<Screen> = Vec::new();
    let mut inside = false;
    for line in markdown.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match (line.strip_prefix("$ "), screens.last_mut()) {
                (Some(command), _) => {
                    // What is said about a command behind `#` is no part of it.
                    let command = command.split("  #").next().unwrap_or_default().to_owned();
                    screens.push(Screen { command, output: Vec::new() });
                }
                (None, Some(screen)) => screen.output.push(line.to_owned()),
                (None, None) => panic!("a block begins without a command: {line}"),
            },
        }
    }
    screens
}

/// A line without what differs from run to run and from machine to machine.
fn masked(line: &str) -> String {
    let mut line = line.to_owned();
    // The device, between the model and the program.
    if let (Some(first), Some(last)) = (line.find(", "), line.rfind(", "))
        && line.starts_with("bitwalk: ")
        && first < last
    {
        line.replace_range(first..last, ", DEVICE");
    }
    // Times, rates, shares.
    let figure = Regex::new(r"\d+(\.\d+)? (ms/token|ms|s|tok/s|TB/s|%)").unwrap();
    let mut line = figure.replace_all(&line, "# $2").into_owned();
    if line.starts_with("eager ") || line.starts_with("graph ") {
        line = Regex::new(r"\d+\.\d+").unwrap().replace_all(&line, "#").into_owned();
    }
    // Columns move with the length of their figures.
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether `said` is what `wanted` shows of it.
fn agrees(wanted: &[String], said: &[String]) -> bool {
    match wanted.split_first() {
        None => said.is_empty(),
        Some((line, rest)) if line == "…" => (0..=said.len()).any(|skip| agrees(rest, &said[skip..])),
        Some((line, rest)) => said
            .split_first()
            .is_some_and(|(first, said)| masked(first) == masked(line) && agrees(rest, said)),
    }
}

/// What a command prints on standard output and standard error, in the order of printing.
fn printed(command: &str) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_bitwalk"));
    let path = std::env::var("PATH").unwrap_or_default();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut child = {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", command])
            .current_dir(repository())
            .env("PATH", format!("{}:{path}", program.parent().unwrap().display()))
            .env("BITWALK_DEVICE", "sim")
            .env_remove("BITWALK_MODEL")
            .stdin(std::process::Stdio::null())
            .stdout(writer.try_clone().unwrap())
            .stderr(writer);
        // The shell's ends of the pipe close with the command that holds them.
        shell.spawn().unwrap()
    };
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{command}: {status}\n{text}");
    text.lines().map(str::to_owned).collect()
}

/// Runs every screen whose command is `bitwalk`.
#[test]
#[ignore = "needs the model that `cargo xtask model smollm2` fetches"]
fn screens_are_what_is_printed() {
    let model = repository().join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    assert!(model.is_file(), "`cargo xtask model smollm2` fetches {}", model.display());
    let mut compared = 0;
    for screen in screens(README) {
        if !screen.command.split_whitespace().any(|word| word == "bitwalk") {
            continue;
        }
        let said = printed(&screen.command);
        let (wanted, said_text) = (screen.output.join("\n"), said.join("\n"));
        assert!(
            agrees(&screen.output, &said),
            "$ {}\n--- the README shows\n{wanted}\n--- it prints\n{said_text}",
            screen.command
        );
        println!("$ {}: as shown", screen.command);
        compared += 1;
    }
    assert!(compared >= 5, "{compared} screens compared");
}

/// Commands and options that the README names exist.
#[test]
fn commands_and_options_exist() {
    let mut options = 0;
    for screen in screens(README) {
        let words: Vec<&str> = screen.command.split_whitespace().collect();
        let Some(at) = words.iter().position(|&word| word == "bitwalk") else { continue };
        let verb = words[at + 1];
        let help = Command::new(env!("CARGO_BIN_EXE_bitwalk")).args([verb, "--help"]).output().unwrap();
        assert!(help.status.success(), "{verb}");
        let help = String::from_utf8(help.stdout).unwrap();
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "{verb} has no {option}");
            options += 1;
        }
    }
    assert!(options > 2, "the README shows {options} options");
}

#[test]
fn masks_hide_figures_and_nothing_else() {
    let [a, b] = ["12 tokens in 0.31 s, 38.7 tok/s", "12 tokens in 2.5 s,  4 tok/s"].map(masked);
    assert_eq!(a, b);
    assert_ne!(masked("12 tokens in 0.31 s"), masked("13 tokens in 0.31 s"));
    assert_eq!(masked("graph    1.25   800.0   -"), masked("graph 187.2 5.3 -"));
    let [a, b] =
        ["cuda:0, NVIDIA H200", "sim:0: no driver"].map(|d| masked(&format!("bitwalk: m, {d}, exact")));
    assert_eq!(a, b);
    let lines = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<_>>();
    assert!(agrees(&lines("a|…|d"), &lines("a|b|c|d")) && agrees(&lines("a|…"), &lines("a")));
    assert!(!agrees(&lines("a|…|d"), &lines("a|b|c")) && !agrees(&lines("a"), &lines("a|b")));
    let screens = screens("x\n```console\n$ one  # words\nout\n$ two\n```\n$ no\n");
    let pairs: Vec<_> = screens.iter().map(|s| (s.command.as_str(), s.output.len())).collect();
    assert_eq!(pairs, [("one", 1), ("two", 0)]);
}
