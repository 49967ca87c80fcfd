//! The model as a [`Report`]: costs, savings and losses, what carries them, and every input with its source.

use serde_json::{Value, json};

use super::{
    Cost, Fault, Inputs, Saving, costs,
    link::{self, Transfer},
    sensitivity::{Swing, swings},
};
use crate::{
    report::{Block, Cell, INK, Mark, Picture, Report, Section, Table},
    trial::digits,
};

/// One of the kinds of saving.
type Of = fn(&Saving) -> f64;

/// The document behind a report and of `--json`, `narrows.tco/1`.
///
/// # Errors
/// [`Fault`] where the inputs contradict each other.
pub fn document(inputs: &Inputs) -> Result<Value, Fault> {
    let costs = costs(inputs)?;
    let baseline = baseline(inputs)?;
    let mut designs = Vec::new();
    for (number, cost) in costs.iter().enumerate() {
        let swings = if number == baseline {
            Vec::new()
        } else {
            swings(inputs, number)?
        };
        designs.push(
            json!({ "cost": cost, "saving": cost.saving(&costs[baseline]), "sensitivity": swings }),
        );
    }
    let link = link::month(inputs).ok();
    Ok(
        json!({ "schema": "narrows.tco/1", "inputs": inputs, "designs": designs, "link": link,
        "energy": "from data sheets and assumed loads; nothing was measured in joules" }),
    )
}

/// The report.
///
/// # Errors
/// [`Fault`] where the inputs contradict each other.
pub fn report(inputs: &Inputs) -> Result<Report, Fault> {
    let costs = costs(inputs)?;
    let baseline = baseline(inputs)?;
    let mut sections = vec![costs_section(&costs, baseline)];
    for (number, cost) in costs
        .iter()
        .enumerate()
        .filter(|(number, _)| *number != baseline)
    {
        sections.push(sensitivity_section(
            cost,
            cost.saving(&costs[baseline]),
            &swings(inputs, number)?,
            &inputs.baseline,
        ));
    }
    if let Ok(month) = link::month(inputs) {
        sections.push(link_section(&month));
    }
    sections.push(inputs_section(inputs));
    let intro = costs
        .iter()
        .enumerate()
        .filter(|(number, _)| *number != baseline)
        .map(|(_, cost)| sentence(cost, &cost.saving(&costs[baseline]), &inputs.baseline));
    Ok(Report {
        title: format!("narrows tco: {}", inputs.title),
        intro: intro.collect(),
        sections,
        document: document(inputs)?,
    })
}

fn baseline(inputs: &Inputs) -> Result<usize, Fault> {
    inputs
        .baseline()
        .ok_or_else(|| Fault::Baseline(inputs.baseline.clone()))
}

/// What a design saves and where it loses, in a sentence.
#[must_use]
pub fn sentence(cost: &Cost, saving: &Saving, baseline: &str) -> String {
    format!(
        "{} against {baseline}: {} a server, {} a GB/s of bandwidth, {} a terabyte of data, {} for the whole demand.",
        cost.design,
        less(saving.per_server),
        less(saving.per_gb_per_s),
        less(saving.per_tb),
        less(saving.for_demand),
    )
}

/// `9.1 % less`, `3.9 % more`.
#[must_use]
pub fn less(saving: f64) -> String {
    format!(
        "{:.1} % {}",
        saving.abs() * 100.0,
        if saving < 0.0 { "more" } else { "less" }
    )
}

fn costs_section(costs: &[Cost], baseline: usize) -> Section {
    let mut columns = vec![("".to_string(), false)];
    columns.extend(costs.iter().map(|cost| (cost.design.clone(), true)));
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut row = |name: &str, of: &dyn Fn(&Cost) -> String| {
        let cells = costs.iter().map(|cost| Cell::from(of(cost)));
        rows.push(
            std::iter::once(Cell::marked(name.into(), Mark::Name))
                .chain(cells)
                .collect(),
        );
    };
    row("processors", &|cost| cost.processor.clone());
    row("ratio after rounding to granules", &|cost| {
        format!("{:.3}", cost.allocated_ratio)
    });
    row("effective TB a server", &|cost| digits(cost.effective_tb));
    row("GB/s a server", &|cost| {
        format!(
            "{:.2}{}",
            cost.gb_per_s,
            if cost.cpu_bound {
                ", processors bind"
            } else {
                ""
            }
        )
    });
    row("processor load", &|cost| {
        format!("{:.0} %", cost.cpu_load * 100.0)
    });
    row("W a server", &|cost| digits(cost.watts));
    row("USD a server over the years", &|cost| {
        format!("{:.0}", cost.usd_per_server)
    });
    row("USD a TB and month", &|cost| {
        format!("{:.2}", cost.usd_per_tb_month)
    });
    row("USD a GB/s", &|cost| {
        format!("{:.0}", cost.usd_per_gb_per_s)
    });
    row("servers for the demand", &|cost| cost.servers.to_string());
    row("USD for the demand", &|cost| {
        format!("{:.0}", cost.usd_for_demand)
    });
    let kinds: [(&str, Of); 4] = [
        ("a server", |saving| saving.per_server),
        ("a TB", |saving| saving.per_tb),
        ("a GB/s", |saving| saving.per_gb_per_s),
        ("the demand", |saving| saving.for_demand),
    ];
    for (name, of) in kinds {
        let cells = costs.iter().enumerate().map(|(number, cost)| {
            let saving = of(&cost.saving(&costs[baseline]));
            match saving {
                _ if number == baseline => "".to_string().into(),
                saving if saving < 0.0 => Cell::marked(less(saving), Mark::Loss),
                0.0 => less(saving).into(),
                saving => Cell::marked(less(saving), Mark::Best),
            }
        });
        rows.push(
            std::iter::once(Cell::marked(format!("cost of {name}"), Mark::Name))
                .chain(cells)
                .collect(),
        );
    }
    let caption =
        "What a server has, costs, and is worth against the baseline. Shaded: dearer.".into();
    Section {
        heading: "Cost".into(),
        blocks: vec![
            Block::Picture(parts(costs)),
            Block::Table(Table {
                caption,
                columns,
                rows,
            }),
        ],
    }
}

/// Cost of a server by part, as stacked bars.
fn parts(costs: &[Cost]) -> Picture {
    let names: Vec<&str> = costs[0]
        .capex
        .iter()
        .chain(&costs[0].opex)
        .map(|(part, _)| *part)
        .collect();
    let values: Vec<_> = costs
        .iter()
        .flat_map(|cost| {
            let of = move |(place, (part, usd)): (usize, &(&str, f64))| {
                json!({ "design": cost.design, "part": part, "place": place, "usd": usd })
            };
            cost.capex.iter().chain(&cost.opex).enumerate().map(of)
        })
        .collect();
    let order: Vec<&str> = costs.iter().map(|cost| cost.design.as_str()).collect();
    let spec = json!({
        "width": 700, "height": { "step": 44 }, "data": { "values": values },
        "mark": { "type": "bar", "cornerRadiusEnd": 2 },
        "encoding": {
            "y": { "field": "design", "type": "nominal", "sort": order, "title": null, "axis": { "labelFontSize": 13, "ticks": false, "domain": false } },
            "x": { "field": "usd", "type": "quantitative", "title": "USD a server over the years", "stack": "zero" },
            "color": { "field": "part", "type": "nominal", "title": null, "sort": names,
                "legend": { "orient": "bottom", "columns": 5, "symbolType": "square" },
                "scale": { "domain": names, "range": PALETTE } },
            "order": { "field": "place", "type": "quantitative" },
        },
    });
    Picture {
        caption: "Cost of one server by part.".into(),
        spec,
    }
}

fn sensitivity_section(cost: &Cost, saving: Saving, swings: &[Swing], baseline: &str) -> Section {
    let kinds: [(&str, Of); 2] = [
        ("a server", |saving| saving.per_server),
        ("a GB/s of bandwidth", |saving| saving.per_gb_per_s),
    ];
    let mut blocks = Vec::new();
    for (name, of) in kinds {
        let picture = Picture {
            caption: format!(
                "Saving on {name} against {baseline}, with one input at the low and at the high end of its range and all \
                 others as they are. The line is the saving with all as they are, {:.1} %.",
                of(&saving) * 100.0
            ),
            spec: tornado(swings, of(&saving), of),
        };
        blocks.push(Block::Picture(picture));
    }
    let columns = [
        "input",
        "unit",
        "low",
        "saving",
        "high",
        "saving",
        "GB/s: low",
        "GB/s: high",
    ];
    let rows = swings.iter().map(|swing| {
        let percent = |saving: f64| {
            let text = format!("{:.1} %", saving * 100.0);
            if saving < 0.0 {
                Cell::marked(text, Mark::Loss)
            } else {
                text.into()
            }
        };
        vec![
            Cell::marked(swing.input.clone(), Mark::Name),
            swing.unit.clone().into(),
            short(swing.low).into(),
            percent(swing.at_low.per_server),
            short(swing.high).into(),
            percent(swing.at_high.per_server),
            percent(swing.at_low.per_gb_per_s),
            percent(swing.at_high.per_gb_per_s),
        ]
    });
    blocks.push(Block::Table(Table {
        caption: "All inputs with a range, widest first".into(),
        columns: columns
            .iter()
            .enumerate()
            .map(|(at, name)| ((*name).to_string(), at > 1))
            .collect(),
        rows: rows.collect(),
    }));
    Section {
        heading: format!("What carries the saving of {}", cost.design),
        blocks,
    }
}

/// Bars from the saving at the low end to that at the high end, the widest on top.
fn tornado(swings: &[Swing], base: f64, of: Of) -> Value {
    let mut widest: Vec<&Swing> = swings.iter().collect();
    widest.sort_by(|a, b| b.width(of).total_cmp(&a.width(of)));
    let widest = &widest[..widest.len().min(TORNADO_MAX)];
    let names: Vec<&str> = widest.iter().map(|swing| swing.input.as_str()).collect();
    let values: Vec<_> = widest
        .iter()
        .flat_map(|swing| {
            [("low end", swing.low, of(&swing.at_low)), ("high end", swing.high, of(&swing.at_high))].map(|(end, value, saving)| {
                // The end's value stands outside its bar.
                let (left, right) = if saving < base { (short(value), String::new()) } else { (String::new(), short(value)) };
                json!({ "input": swing.input, "end": end, "from": base * 100.0, "to": saving * 100.0, "left": left, "right": right })
            })
        })
        .collect();
    let y = json!({ "field": "input", "type": "nominal", "sort": names, "title": null, "axis": { "ticks": false, "domain": false } });
    let text = |align: &str, dx: i32, field: &str| {
        json!({ "mark": { "type": "text", "align": align, "dx": dx, "fontSize": 11 },
            "encoding": { "x": { "field": "to", "type": "quantitative" }, "text": { "field": field, "type": "nominal" } } })
    };
    json!({
        "width": 560, "height": { "step": 22 }, "data": { "values": values }, "encoding": { "y": y },
        "layer": [
            { "mark": { "type": "bar", "height": 13 }, "encoding": {
                "x": { "field": "from", "type": "quantitative", "title": "saving, %", "scale": { "zero": false, "padding": 40 } },
                "x2": { "field": "to" },
                "color": { "field": "end", "type": "nominal", "title": null, "legend": { "orient": "bottom" },
                    "scale": { "domain": ["low end", "high end"], "range": ["#9cc3e4", "#3f6f9f"] } } } },
            text("right", -4, "left"), text("left", 4, "right"),
            { "data": { "values": [{ "base": base * 100.0 }] },
              "mark": { "type": "rule", "color": INK },
              "encoding": { "y": null, "x": { "field": "base", "type": "quantitative" } } },
        ],
    })
}

fn link_section(month: &Transfer) -> Section {
    let rows = link_rows(month).into_iter().map(|(name, raw, packed)| {
        vec![
            Cell::marked(name.into(), Mark::Name),
            raw.into(),
            packed.into(),
        ]
    });
    let table = Table {
        caption: "A month of transfers".into(),
        columns: vec![
            ("".into(), false),
            ("raw".into(), true),
            ("packed".into(), true),
        ],
        rows: rows.collect(),
    };
    let mut blocks = vec![Block::Text(link_sentence(month)), Block::Table(table)];
    if month.saved_usd < 0.0 {
        blocks.push(Block::Note(
            "On these inputs packing costs more than it saves.".into(),
        ));
    }
    Section {
        heading: "A link".into(),
        blocks,
    }
}

/// What a month comes to, for people.
#[must_use]
pub fn link_sentence(month: &Transfer) -> String {
    format!(
        "Packing {} {:.0} USD a month, at egress above {:.4} USD a GB it pays, and keeps {:.1} threads busy while the link is full.",
        if month.saved_usd < 0.0 {
            "loses"
        } else {
            "saves"
        },
        month.saved_usd.abs(),
        month.break_even_usd_per_gb,
        month.pack_threads,
    )
}

/// Name, raw, packed.
#[must_use]
pub fn link_rows(month: &Transfer) -> Vec<(&'static str, String, String)> {
    let fits = |fits: bool| if fits { "yes" } else { "no" }.to_string();
    vec![
        (
            "hours on the link",
            digits(month.raw_hours),
            digits(month.packed_hours),
        ),
        (
            "fits into the month",
            fits(month.fits_raw),
            fits(month.fits_packed),
        ),
        (
            "egress, USD",
            format!("{:.0}", month.raw_egress_usd),
            format!("{:.0}", month.packed_egress_usd),
        ),
        ("thread-hours", "0".into(), digits(month.thread_hours)),
        ("processors, USD", "0".into(), digits(month.cpu_usd)),
    ]
}

fn inputs_section(inputs: &Inputs) -> Section {
    let rows = inputs.all().map(|(name, input)| {
        let range = match (input.low, input.high) {
            (None, None) => String::new(),
            (low, high) => format!(
                "{} to {}",
                short(low.unwrap_or(input.value)),
                short(high.unwrap_or(input.value))
            ),
        };
        vec![
            Cell::marked(name, Mark::Name),
            short(input.value).into(),
            input.unit.clone().into(),
            range.into(),
            input.source.clone().into(),
        ]
    });
    let columns = [
        ("input", false),
        ("value", true),
        ("unit", false),
        ("range", false),
        ("source", false),
    ];
    let table = |caption: &str, columns: &[(&str, bool)], rows| Table {
        caption: caption.into(),
        columns: columns
            .iter()
            .map(|(name, number)| ((*name).to_string(), *number))
            .collect(),
        rows,
    };
    let processors = inputs.processors.iter().map(|processor| {
        vec![
            Cell::marked(processor.name.clone(), Mark::Name),
            short(processor.threads).into(),
            short(processor.watts()).into(),
            short(processor.usd()).into(),
            processor.source.clone().into(),
        ]
    });
    let heads = [
        ("processors", false),
        ("threads", true),
        ("W", true),
        ("USD", true),
        ("source", false),
    ];
    Section {
        heading: "Inputs and where they are from".into(),
        blocks: vec![
            Block::Text(
                "Change any of them: narrows tco --print-inputs > mine.toml, then narrows tco --inputs mine.toml."
                    .into(),
            ),
            Block::Table(table("", &columns, rows.collect())),
            Block::Table(table(
                "A design gets the least dear that leaves the bandwidth to its drives; else the fastest",
                &heads,
                processors.collect(),
            )),
        ],
    }
}

fn short(value: f64) -> String {
    if value == value.trunc() {
        format!("{value:.0}")
    } else {
        format!("{value}")
    }
}

const TORNADO_MAX: usize = 14;
const PALETTE: [&str; 10] = [
    "#0b7a75", "#3f6f9f", "#8bbf9f", "#a9bcc9", "#5d6d78", "#9cc3e4", "#c2571a", "#e0a030",
    "#d98cb3", "#7a4b2a",
];

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: both claims of the deck, its loss, and every source are on the page.
    #[test]
    fn the_page_says_claims_losses_and_sources() {
        let inputs = Inputs::deck();
        let html = report(&inputs).unwrap().html();
        for said in [
            "9.1 % less a server",
            "31.0 % less a GB/s",
            "more a terabyte",
            "class=\"loss\"",
            "fitted: at this price",
        ] {
            assert!(html.contains(said), "{said}");
        }
        for (name, _) in inputs.all() {
            assert!(html.contains(&name), "{name}");
        }
    }
}
