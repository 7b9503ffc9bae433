//! Draws the live view: tables of a snapshot and a list of events. It decides nothing.
use super::{publisher::Service, snapshot::Snapshot, state::TimedEvent, table};
use petiole_people::screen::{Content, INTERRUPT, cut, draw_table, titled};
use ratatui::{
    Frame,
    crossterm::event::KeyCode,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::Paragraph,
};

/// The width of the time before an event.
const TIME_WIDTH: u16 = 11;

/// A command of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    /// Withdraw the service with this number, or announce it again.
    Toggle(usize),
    RestartKubelet,
}

/// The content of the screen.
pub(super) struct View<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) services: &'a [Service],
    pub(super) events: &'a [TimedEvent],
}

/// Returns the command that a key means.
pub(super) fn meaning(key: KeyCode) -> Option<Key> {
    if let KeyCode::Char(digit @ '1'..='9') = key {
        return Some(Key::Toggle(digit as usize - '1' as usize));
    }
    let keys = [
        (KeyCode::Char('q'), Key::Quit),
        (KeyCode::Esc, Key::Quit),
        (INTERRUPT, Key::Quit),
        (KeyCode::Char('k'), Key::RestartKubelet),
    ];
    let known = keys.into_iter().find(|(known, _)| *known == key);
    known.map(|(_, meaning)| meaning)
}

pub(super) fn draw(frame: &mut Frame<'_>, view: &View<'_>) {
    let snapshot = view.snapshot;
    let height = |rows: usize| Constraint::Length(u16::try_from(rows + 3).unwrap_or(u16::MAX));
    let (instances, brokers) = (table::instances(snapshot), table::brokers(snapshot));
    let node = table::node(snapshot);
    let [head, top, middle, bottom, events, foot] = Layout::vertical([
        Constraint::Length(2),
        height(instances.len().max(1)),
        height(node.len().max(1)),
        height(brokers.len().max(1)),
        Constraint::Min(4),
        Constraint::Length(2),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(intro()), head);
    let content = Content {
        title: "Instances  (the agent creates one for each device)",
        columns: &table::INSTANCE_COLUMNS,
        rows: &instances,
        widths: [32, 15, 6, 10, 5, 9, 60],
        color,
        selected: None,
    };
    draw_table(frame, top, &content);
    let content = Content {
        title: "Node  (resources that Pods can request, and their plugins' sockets)",
        columns: &table::NODE_COLUMNS,
        rows: &node,
        widths: [40, 8, 24, 60],
        color,
        selected: None,
    };
    draw_table(frame, middle, &content);
    let content = Content {
        title: "Brokers  (a Pod for each Instance, with its variables)",
        columns: &table::BROKER_COLUMNS,
        rows: &brokers,
        widths: [60, 40, 8, 40, 60],
        color,
        selected: None,
    };
    draw_table(frame, bottom, &content);
    draw_events(frame, events, view.events);
    frame.render_widget(Paragraph::new(help(view.services)), foot);
}

fn intro() -> Vec<Line<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    vec![
        Line::from(vec![
            Span::styled("petiole demo", bold),
            Span::raw("  services on the network -> Instances -> resources -> Pods"),
        ]),
        Line::from(
            "No cluster: Pods are processes. Endpoint grace and gracePeriodSeconds are 5 s.",
        ),
    ]
}

fn help(services: &[Service]) -> Vec<Line<'static>> {
    let mut names = vec![Span::raw("services: ")];
    for (n, service) in services.iter().enumerate() {
        let color = if service.is_announced {
            Color::Green
        } else {
            Color::Red
        };
        let name = service.sample.name.trim_start_matches("Demo ");
        names.push(Span::styled(
            format!("{} {name}  ", n + 1),
            Style::new().fg(color),
        ));
    }
    vec![
        Line::from(names),
        Line::from(format!(
            "keys: 1 to {} withdraw or announce a service   k restart the kubelet   q quit",
            services.len()
        )),
    ]
}

fn color<const N: usize>(cells: &[String; N]) -> Color {
    let has = |is_it: fn(&String) -> bool| cells.iter().any(is_it);
    match () {
        () if has(|cell| cell == "Unhealthy" || cell.starts_with("Failed")) => Color::Red,
        () if has(|cell| cell == "Healthy" || cell == "Running") => Color::Green,
        () => Color::Reset,
    }
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, events: &[TimedEvent]) {
    let height = usize::from(area.height.saturating_sub(1));
    let lines: Vec<Line<'_>> = events[events.len().saturating_sub(height)..]
        .iter()
        .map(|event| {
            let time = Span::styled(
                format!("{:>7.2} s  ", event.at.as_secs_f64()),
                Style::new().fg(Color::DarkGray),
            );
            let room = area.width.saturating_sub(TIME_WIDTH);
            Line::from(vec![time, Span::raw(cut(&event.text, room))])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines).block(titled("Events")), area);
}
