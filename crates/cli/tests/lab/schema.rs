//! Checks lines against `docs/specs/result.schema.json` with as much of JSON Schema as that file uses. A keyword this
//! check does not know fails it, so that the schema cannot ask for something nobody looks at.

use serde_json::Value;

/// Every line of `text` obeys the schema, every row has an origin before it.
pub(crate) fn check(text: &str) {
    let schema: Value =
        serde_json::from_str(include_str!("../../../../docs/specs/result.schema.json")).unwrap();
    let mut runs = Vec::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        holds(&schema, &value).unwrap_or_else(|fault| panic!("{fault} in {line}"));
        match value.get("origin") {
            Some(_) => runs.push(value["run"].clone()),
            None => assert!(runs.contains(&value["run"]), "no origin before {line}"),
        }
    }
    assert!(!runs.is_empty(), "there are no lines");
}

fn holds(schema: &Value, value: &Value) -> Result<(), String> {
    for (keyword, asked) in schema.as_object().expect("a schema is an object") {
        let fine = match keyword.as_str() {
            "$schema" | "title" | "description" => true,
            "type" => match asked {
                Value::Array(types) => types.iter().any(|name| is(value, name.as_str().unwrap())),
                name => is(value, name.as_str().unwrap()),
            },
            "const" => value == asked,
            "enum" => asked.as_array().unwrap().contains(value),
            "pattern" => matches(asked.as_str().unwrap(), value.as_str().unwrap_or_default()),
            "required" => asked
                .as_array()
                .unwrap()
                .iter()
                .all(|name| value.get(name.as_str().unwrap()).is_some()),
            "oneOf" => {
                asked
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|one| holds(one, value).is_ok())
                    .count()
                    == 1
            }
            "items" => {
                value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .try_for_each(|item| holds(asked, item))?;
                true
            }
            "properties" => {
                for (name, inner) in asked.as_object().unwrap() {
                    if let Some(member) = value.get(name) {
                        holds(inner, member).map_err(|fault| format!("{name}: {fault}"))?;
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                let others = value.as_object().into_iter().flatten();
                for (name, member) in
                    others.filter(|(name, _)| known.is_none_or(|known| !known.contains_key(*name)))
                {
                    if *asked == Value::Bool(false) {
                        return Err(format!("`{name}` is not in the schema"));
                    }
                    holds(asked, member).map_err(|fault| format!("{name}: {fault}"))?;
                }
                true
            }
            other => panic!("the schema uses `{other}`, which this check does not know"),
        };
        if !fine {
            return Err(format!("{keyword} {asked} does not hold for {value}"));
        }
    }
    Ok(())
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "null" => value.is_null(),
        other => panic!("there is no type {other}"),
    }
}

/// Literals, and classes like `[0-9a-f]{16}`, anchored at both ends: all that the schema's patterns are.
fn matches(pattern: &str, text: &str) -> bool {
    let mut rest = pattern
        .strip_prefix('^')
        .and_then(|rest| rest.strip_suffix('$'))
        .expect("patterns are anchored");
    let mut chars = text.chars();
    while !rest.is_empty() {
        if let Some((class, after)) = rest
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]{"))
        {
            let (count, after) = after.split_once('}').unwrap();
            let class: Vec<char> = class.chars().collect();
            let held = |c: char| {
                class
                    .windows(3)
                    .any(|three| three[1] == '-' && (three[0]..=three[2]).contains(&c))
            };
            for _ in 0..count.parse::<usize>().unwrap() {
                if !chars.next().is_some_and(held) {
                    return false;
                }
            }
            rest = after;
        } else {
            let literal = rest.chars().next().unwrap();
            if chars.next() != Some(literal) {
                return false;
            }
            rest = &rest[literal.len_utf8()..];
        }
    }
    chars.next().is_none()
}

// Goal: the check can fail. Method: spoil a good line in every way the schema speaks of.
#[test]
fn spoiled_lines_do_not_hold() {
    let schema: Value =
        serde_json::from_str(include_str!("../../../../docs/specs/result.schema.json")).unwrap();
    let machine = r#"{"cpu":"c","cores":2,"memory_bytes":null,"kernel":"k","system":null,"arch":"a","load":0.5,"version":"v","commit":"c","build":"debug"}"#;
    let origin = format!(
        r#"{{"schema":"narrows.result/1","run":"0123456789abcdef","origin":{{"tool":"bench","started":"2026-01-01T00:00:00Z","command":"c","machine":{machine},"seeds":[1],"energy":"e"}}}}"#
    );
    let row = r#"{"schema":"narrows.result/1","run":"0123456789abcdef","row":{"case":{"codec":"lz4","threads":1},"values":{"ratio":1.5}}}"#;
    check(&format!("{origin}\n{row}"));
    for (line, from, to) in [
        (&*origin, "result/1", "result/2"),
        (&origin, "0123456789abcdef", "0123456789abcdeg"),
        (&origin, "0123456789abcdef", "0123"),
        (&origin, "T00:00:00Z", "T00:00:00Zx"),
        (&origin, "\"tool\":\"bench\"", "\"tool\":\"bunch\""),
        (&origin, "[1]", "[1.5]"),
        (&origin, "\"cores\":2", "\"cores\":\"2\""),
        (&origin, "\"energy\":\"e\"", "\"energie\":\"e\""),
        (row, "\"row\"", "\"rho\""),
        (row, "\"threads\"", "\"threats\""),
        (row, "1.5", "\"1.5\""),
        (row, "\"values\"", "\"value\""),
        (row, "\"row\":", "\"origin\":{},\"row\":"),
    ] {
        assert!(line.contains(from));
        let spoiled: Value = serde_json::from_str(&line.replacen(from, to, 1)).unwrap();
        assert!(holds(&schema, &spoiled).is_err(), "{from} -> {to}");
    }
}
