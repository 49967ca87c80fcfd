//! `docs/prometheus`: a real Prometheus takes the rules, scrapes the services, and finds what the dashboard asks for.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Process, eventually, has, run, skip, start};

/// An address of loopback that nobody listens at.
fn free() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// What `address` answers to a GET of `path`; nothing if it does not.
fn get(address: &str, path: &str) -> String {
    let fetch = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        Ok(answer
            .split_once("\r\n\r\n")
            .map_or(String::new(), |(_, body)| body.into()))
    };
    fetch().unwrap_or_default()
}

/// The series that an expression gives; `None` if Prometheus does not take it.
fn query(address: &str, expression: &str) -> Option<usize> {
    let encoded: String = expression
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect();
    let body = get(address, &format!("/api/v1/query?query={encoded}"));
    let answer: Value = serde_json::from_str(&body).ok()?;
    let series = answer["data"]["result"].as_array()?;
    (answer["status"] == "success").then_some(series.len())
}

/// Every query of the dashboard.
fn queries(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let text = |target: &Value| {
        target["expr"]
            .as_str()
            .unwrap()
            .replace("$__rate_interval", "10s")
    };
    targets.map(text).collect()
}

/// Servers of several kinds, and where each serves its metrics.
fn servers(dir: &Path) -> Vec<(&'static str, String, Process)> {
    let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let psk = at("keys/keys.psk");
    run(["keys", &at("keys")]).expect(0);
    run([
        "disk",
        "create",
        "--backing",
        &at("backing"),
        "--size",
        "64M",
    ])
    .expect(0);
    let (nbd, control) = (at("memory.nbd"), at("memory.control"));
    let (disk, backing, disk_control) = (at("disk.nbd"), at("backing"), at("disk.control"));
    let commands: [(&str, Vec<&str>); 3] = [
        (
            "memory",
            vec![
                "memory",
                "serve",
                "--size",
                "1M",
                "--mem-limit",
                "1M",
                "--unix",
                &nbd,
                "--control",
                &control,
            ],
        ),
        (
            "disk",
            vec![
                "disk",
                "serve",
                "--backing",
                &backing,
                "--unix",
                &disk,
                "--control",
                &disk_control,
            ],
        ),
        (
            "gpu",
            vec!["gpu", "serve", "--listen", "127.0.0.1:0", "--tls-psk", &psk],
        ),
    ];
    let serve = |(name, mut words): (&'static str, Vec<&str>)| {
        let address = free();
        words.extend(["--metrics", &address]);
        let server = start(words);
        eventually("metrics are served", || {
            get(&address, "/").contains("narrows_build_info")
        });
        (name, address, server)
    };
    commands.into_iter().map(serve).collect()
}

// Goal: rules and dashboard name what is there. Method: each of their expressions is evaluated by a real Prometheus that
// scrapes real servers; panels must have data, rules must be taken and well.
#[test]
fn a_prometheus_takes_rules_and_dashboard() {
    if !has("prometheus") || !has("promtool") {
        return skip("prometheus and promtool (package prometheus) are missing");
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/prometheus");
    let rules = fs::canonicalize(docs.join("alerts.yaml")).unwrap();
    let mut check = Command::new("promtool");
    check
        .args(["check", "rules"])
        .arg(&rules)
        .stdin(Stdio::null());
    Process::start(&mut check).wait().expect(0);

    let dir = TempDir::new().unwrap();
    let servers = servers(dir.path());
    let mut config = format!(
        "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: [{}]\nscrape_configs:\n",
        rules.display()
    );
    for (name, address, _) in &servers {
        config += &format!(
            "  - job_name: narrows-{name}\n    static_configs: [{{targets: [\"{address}\"]}}]\n"
        );
    }
    let config_path = dir.path().join("prometheus.yml");
    fs::write(&config_path, config).unwrap();
    let address = free();
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", config_path.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            dir.path().join("tsdb").display()
        ))
        .arg(format!("--web.listen-address={address}"))
        .stdin(Stdio::null());
    let _prometheus = Process::start(&mut command);
    eventually("all are scraped", || {
        query(&address, "up{job=~\"narrows.*\"} == 1") == Some(servers.len())
    });

    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(docs.join("dashboard.json")).unwrap()).unwrap();
    let queries = queries(&dashboard);
    assert!(queries.len() > 20, "{}", queries.len());
    // What has data only once it happened.
    let may_be_empty = |text: &str| text.contains("full_in_seconds") || text.contains("> 0");
    for text in &queries {
        eventually(text, || {
            query(&address, text).is_some_and(|found| found > 0 || may_be_empty(text))
        });
    }
    eventually("rules are evaluated", || {
        let body = get(&address, "/api/v1/rules");
        let answer: Value = serde_json::from_str(&body).unwrap_or_default();
        let groups = answer["data"]["groups"].as_array();
        groups.is_some_and(|groups| {
            let rules: Vec<_> = groups
                .iter()
                .filter_map(|group| group["rules"].as_array())
                .flatten()
                .collect();
            !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok")
        })
    });
    // A rule whose metric no server has would be well and never fire.
    let text = fs::read_to_string(&rules).unwrap();
    for name in text
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("narrows_"))
    {
        // Of sessions, which none of these servers has under its own name.
        if name != "narrows_links_resumed_total" {
            assert!(
                query(&address, name).is_some_and(|found| found > 0),
                "{name} is nowhere"
            );
        }
    }
}
