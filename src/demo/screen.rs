//! Draws the live view of the demo's node, and below it what the demo has besides: the resources of the node, and the
//! services. It decides nothing.
use super::{plan::rows, publisher::Service, state::Demo};
use petiole_people::{
    live,
    screen::{Content, draw_table},
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout},
    style::{Color, Style},
    text::{Line, Span},
    widgets::Paragraph,
};

/// The lines that the live view has at least. The table of resources is left out if it does not fit below them.
const LIVE_LINES: u16 = 24;
const FOOT_LINES: u16 = 3;

pub(super) fn draw(frame: &mut Frame<'_>, demo: &Demo) {
    let rows = rows(&demo.seen);
    let lines = u16::try_from(rows.len() + 3).unwrap_or(u16::MAX);
    let spare = frame.area().height.saturating_sub(LIVE_LINES + FOOT_LINES);
    let [top, bottom, foot] = Layout::vertical([
        Constraint::Min(0),
        Constraint::Length(if lines > spare { 0 } else { lines }),
        Constraint::Length(FOOT_LINES),
    ])
    .areas(frame.area());
    live::draw(frame, top, "petiole demo", &demo.live);
    let content = Content {
        title: "Node  (resources that Pods can request, their plugins' sockets, and the brokers of Instances)",
        columns: &["RESOURCE", "CAPACITY", "ALLOCATABLE", "SOCKET", "BROKER"],
        rows: &rows,
        widths: [40, 8, 24, 60, 60],
        color: |cells| match cells[4].split([':', ',']).next() {
            Some("Running") => Color::Green,
            Some("Failed") => Color::Red,
            _ => Color::Reset,
        },
        selected: None,
    };
    draw_table(frame, bottom, &content);
    frame.render_widget(Paragraph::new(help(demo.publisher.services())), foot);
}

fn help(services: &[Service]) -> Vec<Line<'static>> {
    let mut names = vec![Span::raw("services: ")];
    for (n, service) in services.iter().enumerate() {
        let color = if service.is_announced {
            Color::Green
        } else {
            Color::Red
        };
        let name = service.name.trim_start_matches("Demo ");
        names.push(Span::styled(
            format!("{} {name}  ", n + 1),
            Style::new().fg(color),
        ));
    }
    vec![
        Line::from(
            "No cluster: Pods are processes. Endpoint grace and gracePeriodSeconds are 5 s. Services -> Instances -> resources -> Pods",
        ),
        Line::from(names),
        Line::from(format!(
            "keys: 1 to {} withdraw or announce a service   k restart the kubelet   q quit",
            services.len()
        )),
    ]
}
