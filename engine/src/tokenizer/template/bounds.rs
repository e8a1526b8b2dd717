//! What the template engine's fuel leaves open.
//!
//! Fuel bounds the instructions of a template and the bytes that it makes, but a few of the engine's functions look at the
//! bill only when the work is done: a thousand references to one long string joined, a field padded to a billion characters,
//! lists printed that are made of lists of lists. Here the arguments of these are weighed first.

use minijinja::value::{Kwargs, Rest, StringInput, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value, escape_formatter, filters, tests};

/// Bytes that one unit of fuel pays for, as in the engine.
const BYTES: u64 = 64;
/// How deep lists and maps may lie in each other where they become text.
const DEPTH: u32 = 64;
/// The widest that a field or an indentation may be.
const WIDTH: usize = 999;

/// Sets bounded forms of everything in `environment` that is not bounded by fuel.
pub(super) fn set(environment: &mut Environment<'static>) {
    environment.set_formatter(formatter);
    environment.set_unknown_method_callback(method);
    environment.add_filter("join", join);
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", string);
    environment.add_filter("pprint", pprint);
    environment.add_filter("format", format);
    environment.add_test("lower", lower);
    environment.add_test("upper", upper);
    environment.add_function("raise_exception", raise_exception);
    // It prints all there is, for who writes a template.
    environment.remove_global("debug");
}

fn invalid(words: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, words.into())
}

/// Pays for the text of a value: its strings, and every item as often as it would be written.
fn weigh(state: &State, value: &Value) -> Result<(), Error> {
    fn walk(state: &State, value: &Value, depth: u32) -> Result<(), Error> {
        if let Some(text) = value.as_str() {
            return state.consume_fuel(1 + text.len() as u64 / BYTES);
        }
        state.consume_fuel(1)?;
        if !matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable) {
            return Ok(());
        }
        if depth == 0 {
            return Err(invalid(format!("lists and maps lie deeper in each other than {DEPTH}")));
        }
        for item in value.try_iter()? {
            if value.kind() == ValueKind::Map {
                walk(state, &value.get_item(&item)?, depth - 1)?;
            }
            walk(state, &item, depth - 1)?;
        }
        Ok(())
    }
    walk(state, value, DEPTH)
}

fn formatter(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if value.as_str().is_none() {
        weigh(state, value)?;
    }
    escape_formatter(out, state, value)
}

fn join(
    state: &mut State,
    value: &Value,
    joiner: Option<StringInput<'_>>,
    attribute: Option<&str>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    weigh(state, value)?;
    filters::join(state, value, joiner, attribute, kwargs)
}

fn tojson(state: &mut State, value: &Value, indent: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    weigh(state, value)?;
    let named: Option<Value> = kwargs.get("indent")?;
    let wide = |indent: &Value| indent.as_usize().is_some_and(|indent| indent > WIDTH);
    if indent.iter().chain(&named).any(wide) {
        return Err(invalid(format!("tojson indents by more than {WIDTH}")));
    }
    filters::tojson(value, indent, kwargs)
}

fn string(state: &mut State, value: &Value) -> Result<Value, Error> {
    weigh(state, value)?;
    filters::string(state, value)
}

fn pprint(state: &mut State, value: &Value) -> Result<String, Error> {
    weigh(state, value)?;
    Ok(filters::pprint(value))
}

fn format(state: &mut State, text: &Value, arguments: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    arguments.iter().try_for_each(|argument| weigh(state, argument))?;
    filters::format(state, text, arguments)
}

fn lower(state: &mut State, value: &Value) -> Result<bool, Error> {
    weigh(state, value)?;
    Ok(tests::is_lower(value))
}

fn upper(state: &mut State, value: &Value) -> Result<bool, Error> {
    weigh(state, value)?;
    Ok(tests::is_upper(value))
}

fn raise_exception(state: &mut State, message: &Value) -> Result<Value, Error> {
    weigh(state, message)?;
    Err(invalid(message.to_string()))
}

/// Python's methods of strings, lists and dictionaries.
fn method(state: &mut State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    // Most of them go over the whole text.
    if value.as_str().is_some() {
        weigh(state, value)?;
    }
    arguments.iter().try_for_each(|argument| weigh(state, argument))?;
    match (value.as_str(), name, arguments) {
        (Some(between), "join", [items]) => {
            let count = items.len().unwrap_or(0) as u64;
            state.consume_fuel(count.saturating_mul(between.len() as u64) / BYTES)?;
        }
        (Some(text), "format", _) => narrow(text)?,
        _ => {}
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments)
}

/// Refuses a format with fields of a great or a computed width.
fn narrow(text: &str) -> Result<(), Error> {
    let mut depth = 0u32;
    let mut digits = 0;
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        digits = if c.is_ascii_digit() { digits + 1 } else { 0 };
        if depth > 0 && digits > WIDTH.to_string().len() {
            return Err(invalid(format!("a field of a format is wider than {WIDTH}")));
        }
    }
    Ok(())
}
