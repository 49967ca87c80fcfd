//! Looks at a report in a real browser, where there is one.

use std::{
    fs,
    io::Read,
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

/// Opens a report in Chromium: all pictures are drawn, nothing is complained of, nothing is fetched.
#[allow(dead_code, reason = "each test program looks in its own way")]
pub(crate) fn look_at_any(report: &Path) {
    let page = fs::read_to_string(report).unwrap();
    look_at(report, page.matches("<div class=\"picture\"").count());
}

/// The same, where it is known how many pictures there are; without any there is nothing to draw.
#[allow(dead_code, reason = "each test program looks in its own way")]
pub(crate) fn look_at(report: &Path, pictures: usize) {
    let Some((page, said, fetched)) = browse(report, 1400) else {
        eprintln!("skipped: there is no chromium here to look at the report with");
        return;
    };
    assert!(
        pictures == 0 || page.contains(&format!("data-drawn=\"{pictures}\"")),
        "{said}\n{}",
        &page[..page.len().min(2000)]
    );
    // The scripts below the page's own part name svg too.
    let main = page.split("</main>").next().unwrap();
    assert_eq!(main.matches("<svg").count(), pictures);
    // What was drawn has marks: every picture of a race has bars or rectangles, and text.
    for svg in main.split("<svg").skip(1) {
        let svg = svg.split("</svg>").next().unwrap();
        assert!(
            svg.matches("<path").count() > 5 && svg.matches("<text").count() > 3,
            "{svg}"
        );
    }
    let complaints: Vec<_> = said
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    assert!(fetched.is_empty(), "{fetched:?}");
    // Had it tried, we would know: the same page without its policy, with a picture from elsewhere.
    let text = fs::read_to_string(report).unwrap();
    let open = text
        .replace("Content-Security-Policy", "x")
        .replace("</main>", "<img src=\"http://narrows.invalid/x\"></main>");
    let leaky = report.with_extension("leaky.html");
    fs::write(&leaky, open).unwrap();
    let (_, _, fetched) = browse(&leaky, 1400).expect("it was there a moment ago");
    assert!(
        fetched.iter().any(|line| line.contains("narrows.invalid")),
        "{fetched:?}"
    );
}

/// Goal: on a telephone, a tablet and a desk nothing is wider than the page, and no label of a picture stands over
/// another. Method: a script beside the page's own measures both once all pictures are drawn.
#[allow(dead_code, reason = "each test program looks in its own way")]
pub(crate) fn look_for_room(report: &Path) {
    const MEASURE: &str = r#"<script>
const measure = () => {
  if (!document.documentElement.dataset.drawn) return setTimeout(measure, 20);
  let over = 0;
  for (const picture of document.querySelectorAll(".picture")) {
    const shown = [...picture.querySelectorAll(".mark-text.role-mark text")].filter((text) => text.textContent && text.getBoundingClientRect().width);
    const boxes = new Map(shown.map((text) => [text.textContent + Math.round(text.getBoundingClientRect().left / 4), text.getBoundingClientRect()]));
    const all = [...boxes.values()];
    all.forEach((a, at) => all.slice(at + 1).forEach((b) => {
      if (a.left < b.right && b.left < a.right && a.top < b.bottom - 3 && b.top < a.bottom - 3) over += 1;
    }));
  }
  const root = document.documentElement;
  root.dataset.beyond = Math.max(0, root.scrollWidth - root.clientWidth);
  root.dataset.over = over;
};
measure();
</script></body>"#;
    let text = fs::read_to_string(report).unwrap();
    let open = text.replace("Content-Security-Policy", "x");
    let (open, end) = open.rsplit_once("</body>").unwrap();
    let open = format!("{open}{MEASURE}{end}");
    let measured = report.with_extension("measured.html");
    fs::write(&measured, open).unwrap();
    for width in [360, 800, 1400] {
        let Some((page, said, _)) = browse(&measured, width) else {
            eprintln!("skipped: there is no chromium here to look at the report with");
            return;
        };
        let root = page.split("<html").nth(1).unwrap_or_default();
        let root = root.split('>').next().unwrap_or_default();
        assert!(
            root.contains("data-beyond=\"0\"") && root.contains("data-over=\"0\""),
            "at {width}: {root}\n{said}"
        );
    }
}

/// The page as it stands after its scripts ran, what the browser logged, and what the page asked the network for.
fn browse(page: &Path, width: u32) -> Option<(String, String, Vec<String>)> {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    // Takes requests and answers none; it goes on until the test's process ends.
    let asked_of = asked.clone();
    thread::spawn(move || {
        for mut stream in proxy.incoming().flatten() {
            let mut head = [0; 300];
            let len = stream.read(&mut head).unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..len]);
            asked_of
                .lock()
                .unwrap()
                .push(head.lines().next().unwrap_or_default().to_string());
        }
    });
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .args([
            "--enable-logging=stderr",
            "--virtual-time-budget=30000",
            "--dump-dom",
        ])
        .args([
            format!("--user-data-dir={}", profile.path().display()),
            format!("--proxy-server={address}"),
            format!("--window-size={width},1200"),
        ])
        .arg("--proxy-bypass-list=<-loopback>")
        .arg(format!("file://{}", page.canonicalize().unwrap().display()))
        .stdin(Stdio::null())
        .output()
        .ok()?;
    // The browser itself asks its maker for updates and the time, whatever it is told; the page knows none of those
    // hosts.
    let own = [
        ".google.com",
        ".googleapis.com",
        ".gvt1.com",
        ".gstatic.com",
    ];
    let mut asked = std::mem::take(&mut *asked.lock().unwrap());
    asked.retain(|line| !own.iter().any(|host| line.contains(host)));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((text(&output.stdout), text(&output.stderr), asked))
}
