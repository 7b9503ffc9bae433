//! Draws the live view, tables of a snapshot and a list of events, and reads keys. It decides nothing.
use super::{publisher::Service, snapshot::Snapshot, state::TimedEvent, table};
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Borders, Paragraph, Row, Table},
};
use std::{thread, time::Duration};
use tokio::sync::mpsc;

/// The interval at which the key reader checks whether its receiver still exists.
const KEY_WAIT: Duration = Duration::from_millis(200);

/// A command of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    /// Withdraw the service with this number, or announce it again.
    Toggle(usize),
    RestartKubelet,
}

/// The terminal in full-screen mode. Dropping it restores the previous content.
pub(super) struct Screen {
    terminal: DefaultTerminal,
}

/// The content of the screen.
pub(super) struct View<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) services: &'a [Service],
    pub(super) events: &'a [TimedEvent],
}

impl Screen {
    pub(super) fn open() -> anyhow::Result<Self> {
        Ok(Self {
            terminal: ratatui::try_init()?,
        })
    }

    pub(super) fn draw(&mut self, view: &View<'_>) -> anyhow::Result<()> {
        self.terminal.draw(|frame| draw(frame, view))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Returns the pressed keys. They are read by a thread, because reading a terminal blocks. The thread ends with the
/// receiver.
pub(super) fn keys() -> mpsc::Receiver<Key> {
    let (sender, receiver) = mpsc::channel(16);
    thread::spawn(move || {
        while !sender.is_closed() {
            let key = match event::poll(KEY_WAIT) {
                Ok(true) => event::read().ok().and_then(|event| key_of(&event)),
                Ok(false) => None,
                Err(_) => return,
            };
            if let Some(key) = key
                && sender.blocking_send(key).is_err()
            {
                return;
            }
        }
    });
    receiver
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "of all keys there are, a few do something"
)]
fn key_of(event: &Event) -> Option<Key> {
    let key = event
        .as_key_event()
        .filter(|key| key.kind == KeyEventKind::Press)?;
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char('k') => Some(Key::RestartKubelet),
        KeyCode::Char(digit @ '1'..='9') => Some(Key::Toggle(digit as usize - '1' as usize)),
        _ => None,
    }
}

fn draw(frame: &mut Frame<'_>, view: &View<'_>) {
    let snapshot = view.snapshot;
    let height = |rows: usize| Constraint::Length(u16::try_from(rows + 3).unwrap_or(u16::MAX));
    let (instances, brokers) = (table::instances(snapshot), table::brokers(snapshot));
    let (sockets, node) = (table::sockets(snapshot), table::node(snapshot));
    let [head, top, middle, bottom, events, foot] = Layout::vertical([
        Constraint::Length(2),
        height(instances.len().max(1)),
        height(node.len().max(1)),
        height(brokers.len().max(1)),
        Constraint::Min(4),
        Constraint::Length(2),
    ])
    .areas(frame.area());
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(46), Constraint::Percentage(54)]).areas(middle);
    frame.render_widget(Paragraph::new(intro()), head);
    let content = Content {
        title: "Instances  (the agent creates one for each device)",
        columns: &table::INSTANCE_COLUMNS,
        rows: &instances,
        widths: [22, 15, 6, 10, 5, 9, 0],
    };
    draw_table(frame, top, &content);
    let content = Content {
        title: "Node  (the resources that Pods can request)",
        columns: &table::NODE_COLUMNS,
        rows: &node,
        widths: [32, 8, 0],
    };
    draw_table(frame, left, &content);
    let content = Content {
        title: "Sockets  (on which the kubelet calls the agent)",
        columns: &table::SOCKET_COLUMNS,
        rows: &sockets,
        widths: [32, 0],
    };
    draw_table(frame, right, &content);
    let content = Content {
        title: "Brokers  (a Pod for each Instance, with its variables)",
        columns: &table::BROKER_COLUMNS,
        rows: &brokers,
        widths: [46, 20, 8, 26, 0],
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
            Span::raw(
                "  services on the network -> Instances -> resources of a node -> Pods with their variables",
            ),
        ]),
        Line::from(
            "No cluster: Pods are plain processes of our own kubelet. Endpoint grace 5 s (5 min in real ones), gracePeriodSeconds 5 (default 60), free slots released after 2 s (10 s).",
        ),
    ]
}

fn help(services: &[Service]) -> Vec<Line<'static>> {
    let mut keys = vec![Span::raw("keys: ")];
    for (n, service) in services.iter().enumerate() {
        let (verb, color) = match service.is_announced {
            true => ("withdraw", Color::Green),
            false => ("announce", Color::Red),
        };
        keys.push(Span::styled(
            format!("{}", n + 1),
            Style::new().add_modifier(Modifier::BOLD),
        ));
        keys.push(Span::raw(format!(" {verb} ")));
        keys.push(Span::styled(
            format!("{}  ", service.sample.name),
            Style::new().fg(color),
        ));
    }
    vec![
        Line::from(keys),
        Line::from(
            "      k restart the kubelet   q quit   next: docs in README.md, or `petiole discover zeroconf --help`",
        ),
    ]
}

/// The content of a table.
struct Content<'a, const N: usize> {
    title: &'a str,
    columns: &'a [&'static str; N],
    rows: &'a [[String; N]],
    widths: [u16; N],
}

fn draw_table<const N: usize>(frame: &mut Frame<'_>, area: Rect, content: &Content<'_, N>) {
    let Content {
        title,
        columns,
        rows,
        widths,
    } = content;
    let header = Row::new(**columns).style(Style::new().add_modifier(Modifier::BOLD));
    let rows = rows.iter().map(|cells| {
        let color = match cells {
            _ if cells
                .iter()
                .any(|cell| cell == "Unhealthy" || cell.starts_with("Failed")) =>
            {
                Color::Red
            }
            _ if cells
                .iter()
                .any(|cell| cell == "Healthy" || cell == "Running") =>
            {
                Color::Green
            }
            _ => Color::Reset,
        };
        Row::new(cells.clone()).style(Style::new().fg(color))
    });
    // The last column gets the remaining width.
    let widths = (widths.iter().enumerate()).map(|(n, width)| match n + 1 == N {
        true => Constraint::Fill(1),
        false => Constraint::Length(*width),
    });
    let block = Block::new()
        .borders(Borders::TOP)
        .title(format!(" {title} "));
    frame.render_widget(Table::new(rows, widths).header(header).block(block), area);
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
            Line::from(vec![time, Span::raw(event.text.as_str())])
        })
        .collect();
    let block = Block::new().borders(Borders::TOP).title(" Events ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
