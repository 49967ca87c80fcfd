//! `narrows offload table` against a server on this machine: every case has its numbers, and the lines obey the schema.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::schema;

const NARROWS: &str = env!("CARGO_BIN_EXE_narrows");

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_table_has_each_part_of_the_turn_around() {
    let mut server = Command::new(NARROWS)
        .args(["offload", "serve", "--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .map(Server)
        .unwrap();
    let said = BufReader::new(server.0.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let address = said
        .into_iter()
        .find_map(|line| Some(line.strip_prefix("listening on ")?.to_owned()))
        .unwrap();
    // Beside all other tests a server may well take a quarter of a second for a block.
    let patient = ["--spill-after", "60"];
    let args = [
        "offload",
        "table",
        "--to",
        &address,
        "--repeat",
        "1",
        "--codec",
        "deflate:1,lz4:0",
        "--json",
    ];
    let output = Command::new(NARROWS)
        .args(args)
        .args(patient)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    schema::check(&text);
    let rows: Vec<Value> = text
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 2);
    for row in rows {
        let values = &row["row"]["values"];
        for name in [
            "here_s",
            "device_s",
            "copy_and_back_s",
            "turn_around_s",
            "packed_bytes",
        ] {
            assert!(
                values[name].as_f64().is_some_and(|value| value > 0.0),
                "{name} in {row}"
            );
        }
        assert_eq!(values["spilled_blocks"].as_f64(), Some(0.0), "{row}");
    }
    let without_a_server = Command::new(NARROWS)
        .args(["offload", "table", "--local"])
        .output()
        .unwrap();
    assert_eq!(without_a_server.status.code(), Some(2));
}
