//! One offline HTML file: text, tables, and pictures drawn by Vega-Lite, for any measurement.
//!
//! The file holds all it needs and fetches nothing: its content security policy allows no source but the scripts in it,
//! by their SHA-256. Numbers stand in tables, which need no script; pictures are drawn from specifications in a
//! `application/json` block, and the whole result stands in another, for whoever wants to compute with it.

use std::fmt::Write;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// A report to be.
#[derive(Debug, Clone)]
pub struct Report {
    /// Shown in the tab and on top.
    pub title: String,
    /// Below the title, a paragraph each.
    pub intro: Vec<String>,
    /// In order.
    pub sections: Vec<Section>,
    /// The result behind it, a versioned document.
    pub document: Value,
}

/// A part of a report.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// In order.
    pub blocks: Vec<Block>,
}

/// What stands in a section.
#[derive(Debug, Clone)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A paragraph that must be seen.
    Note(String),
    /// A table.
    Table(Table),
    /// A picture.
    Picture(Picture),
}

/// A picture, as Vega-Lite describes it, its data inline.
#[derive(Debug, Clone)]
pub struct Picture {
    /// What is to be seen, for those who cannot and for those who read first.
    pub caption: String,
    /// Vega-Lite 6; `$schema`, font and background are added.
    pub spec: Value,
}

/// A table.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Above it.
    pub caption: String,
    /// Heads; `true` is a column of numbers, which stand to the right.
    pub columns: Vec<(String, bool)>,
    /// As many cells as there are columns.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    /// Plain text.
    pub text: String,
    /// How it is to be seen.
    pub mark: Mark,
}

/// What a cell says besides its text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mark {
    /// Nothing.
    #[default]
    Plain,
    /// The best of its kind.
    Best,
    /// A loss, to be seen at once.
    Loss,
    /// The row's own name.
    Name,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self {
            text,
            mark: Mark::Plain,
        }
    }
}

impl Cell {
    /// A marked cell.
    #[must_use]
    pub fn marked(text: String, mark: Mark) -> Self {
        Self { text, mark }
    }
}

impl Report {
    /// The file's text.
    #[must_use]
    pub fn html(&self) -> String {
        let mut pictures = Vec::new();
        let mut body = String::new();
        let mut add = |text: &str| body.push_str(text);
        add(&format!("<h1>{}</h1>\n", escape(&self.title)));
        for text in &self.intro {
            add(&format!("<p class=\"intro\">{}</p>\n", escape(text)));
        }
        for section in &self.sections {
            add(&format!(
                "<section>\n<h2>{}</h2>\n",
                escape(&section.heading)
            ));
            for block in &section.blocks {
                match block {
                    Block::Text(text) => add(&format!("<p>{}</p>\n", escape(text))),
                    Block::Note(text) => add(&format!("<p class=\"note\">{}</p>\n", escape(text))),
                    Block::Table(table) => add(&table.html()),
                    Block::Picture(picture) => {
                        add(&format!(
                            "<figure><figcaption>{}</figcaption><div class=\"picture\" id=\"picture-{}\"></div></figure>\n",
                            escape(&picture.caption),
                            pictures.len(),
                        ));
                        pictures.push(dressed(&picture.spec));
                    }
                }
            }
            add("</section>\n");
        }
        let scripts = if pictures.is_empty() {
            Vec::new()
        } else {
            vec![VEGA, VEGA_LITE, VEGA_EMBED, DRAW]
        };
        let sources: Vec<_> = scripts
            .iter()
            .map(|script| format!("'sha256-{}'", base64(&Sha256::digest(script))))
            .collect();
        let allowed = if sources.is_empty() {
            "'none'".into()
        } else {
            sources.join(" ")
        };
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src {allowed}; \
             style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}",
            escape(&self.title)
        );
        if !scripts.is_empty() {
            html.push_str("<noscript><p class=\"note\">The pictures need JavaScript; every number stands in the tables.</p></noscript>\n");
        }
        html.push_str("</main>\n");
        for (id, value) in [
            ("document", &self.document),
            ("pictures", &Value::from(pictures)),
        ] {
            let _ = writeln!(
                html,
                "<script type=\"application/json\" id=\"{id}\">{}</script>",
                quiet(value)
            );
        }
        for script in scripts {
            let _ = writeln!(html, "<script>{script}</script>");
        }
        html.push_str("</body>\n</html>\n");
        html
    }
}

impl Table {
    fn html(&self) -> String {
        let mut html = String::from("<div class=\"table\"><table>\n");
        if !self.caption.is_empty() {
            let _ = writeln!(html, "<caption>{}</caption>", escape(&self.caption));
        }
        html.push_str("<thead><tr>");
        let class = |number: bool| if number { " class=\"n\"" } else { "" };
        for (name, number) in &self.columns {
            let _ = write!(
                html,
                "<th scope=\"col\"{}>{}</th>",
                class(*number),
                escape(name)
            );
        }
        html.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            html.push_str("<tr>");
            for (cell, (_, number)) in row.iter().zip(&self.columns) {
                let text = escape(&cell.text);
                let _ = match cell.mark {
                    Mark::Plain => write!(html, "<td{}>{text}</td>", class(*number)),
                    Mark::Best => write!(html, "<td{}><b>{text}</b></td>", class(*number)),
                    Mark::Loss => write!(
                        html,
                        "<td{}><span class=\"loss\">{text}</span></td>",
                        class(*number)
                    ),
                    Mark::Name => write!(html, "<th scope=\"row\">{text}</th>"),
                };
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</tbody></table></div>\n");
        html
    }
}

/// The specification with what all pictures share.
fn dressed(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let axis = json!({ "labelColor": INK, "titleColor": INK, "titleFontWeight": "normal", "gridColor": "#e6eaed",
        "domainColor": "#c4ccd2", "tickColor": "#c4ccd2", "labelFontSize": 12, "titleFontSize": 12, "labelLimit": 260 });
    spec["$schema"] = "https://vega.github.io/schema/vega-lite/v6.json".into();
    spec["background"] = "transparent".into();
    spec["config"] = json!({
        "font": FONT, "axis": axis, "view": { "stroke": null },
        "title": { "color": INK, "fontSize": 13, "fontWeight": "bold", "anchor": "start", "offset": 8 },
        "legend": { "labelColor": INK, "titleColor": INK, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal" },
        "text": { "color": INK, "fontSize": 12 },
    });
    spec
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// JSON that no text in it can end the script block of.
fn quiet(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let group = three
            .iter()
            .fold(0_u32, |group, byte| group << 8 | u32::from(*byte))
            << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() {
                digit.into()
            } else {
                '='
            });
        }
    }
    text
}

/// Colour of text, also in pictures.
pub const INK: &str = "#22303a";
const FONT: &str = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif";

static VEGA: &str = include_str!("../assets/vega.min.js");
static VEGA_LITE: &str = include_str!("../assets/vega-lite.min.js");
static VEGA_EMBED: &str = include_str!("../assets/vega-embed.min.js");

/// Draws with an interpreter (`ast`), since the policy forbids making code from text; says on the page what fails.
static DRAW: &str = r#"
"use strict";
const specs = JSON.parse(document.getElementById("pictures").textContent);
Promise.all(specs.map((spec, number) => {
  const place = document.getElementById("picture-" + number);
  return vegaEmbed(place, spec, { actions: false, renderer: "svg", ast: true, defaultStyle: false, tooltip: false })
    .catch((fault) => { place.textContent = "This picture could not be drawn: " + fault; throw fault; });
})).then(() => { document.documentElement.dataset.drawn = specs.length; });
"#;

const STYLE: &str = "
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #22303a; font: 15px/1.5 system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 27px; line-height: 1.2; margin: 0 0 12px; letter-spacing: -0.01em; }
h2 { font-size: 19px; margin: 40px 0 8px; padding-top: 14px; border-top: 1px solid #dfe5e9; }
p { margin: 6px 0 10px; max-width: 84ch; }
p.intro { font-size: 16px; }
p.note { border-left: 4px solid #d9822b; background: #fdf6ec; padding: 8px 12px; }
figure { margin: 18px 0 26px; }
figcaption { margin-bottom: 8px; color: #4b5a65; max-width: 84ch; }
.picture { min-height: 40px; overflow-x: auto; }
.picture svg { max-width: 100%; height: auto; display: block; }
.table { overflow-x: auto; margin: 14px 0 20px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: #4b5a65; padding-bottom: 6px; }
th, td { padding: 5px 14px 5px 0; text-align: left; border-bottom: 1px solid #e6eaed; vertical-align: top; }
thead th { color: #4b5a65; font-weight: 600; border-bottom: 2px solid #c4ccd2; vertical-align: bottom; }
tbody th { font-weight: 600; white-space: nowrap; }
.n { text-align: right; white-space: nowrap; padding-left: 14px; }
td b { color: #0b6e69; }
.loss { background: #fbe3d6; color: #8a2f0b; border-radius: 3px; padding: 1px 5px; margin-right: -5px; }
@media (max-width: 760px) {
  main { padding: 20px 14px 48px; }
  h1 { font-size: 22px; }
  h2 { margin-top: 30px; }
  /* Shrunk to the screen a picture's words cannot be read: it is scrolled, as tables are. */
  .picture svg { max-width: none; }
  td { min-width: 8em; }
  td.n { min-width: 0; }
}
@media print {
  body { font-size: 11px; }
  main { max-width: none; padding: 0; }
  h2 { break-after: avoid; }
  figure { break-inside: avoid; }
  tr { break-inside: avoid; }
  .table { overflow-x: visible; }
  table { font-size: 9px; }
  .picture svg { max-height: 24cm; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (raw, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(raw.as_bytes()), text);
        }
    }

    // Goal: no text of a user, a file's name for one, becomes markup or ends a script.
    #[test]
    fn text_stays_text() {
        let evil = "</script><script>alert(1)</script>";
        let table = Table {
            caption: evil.into(),
            columns: vec![(evil.into(), false)],
            rows: vec![vec![evil.to_string().into()]],
        };
        let picture = Picture {
            caption: evil.into(),
            spec: json!({ "title": evil }),
        };
        let blocks = vec![
            Block::Text(evil.into()),
            Block::Note(evil.into()),
            Block::Table(table),
            Block::Picture(picture),
        ];
        let report = Report {
            title: evil.into(),
            intro: vec![evil.into()],
            sections: vec![Section {
                heading: evil.into(),
                blocks,
            }],
            document: json!({ "a": evil }),
        };
        assert!(!report.html().contains("<script>alert"));
    }

    #[test]
    fn scripts_cannot_end_their_own_block() {
        for script in [VEGA, VEGA_LITE, VEGA_EMBED, DRAW] {
            assert!(!script.to_ascii_lowercase().contains("</script") && !script.contains("<!--"));
            assert!(script.len() < 1 << 20);
        }
    }

    #[test]
    fn a_report_without_pictures_has_no_script() {
        let report = Report {
            title: "t".into(),
            intro: vec![],
            sections: vec![],
            document: json!({}),
        };
        assert!(report.html().len() < 10_000 && report.html().contains("script-src 'none'"));
    }
}
