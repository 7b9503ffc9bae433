//! The live view: tables of a snapshot, and the events as they come. Draws and reads keys; decides nothing.
use super::{publisher::Sample, snapshot::Snapshot, table};
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

/// How long the key reader waits before it looks whether anyone still listens.
const KEY_WAIT: Duration = Duration::from_millis(200);

/// What a person asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    /// Take the service with this number away, or bring it back.
    Toggle(usize),
    RestartKubelet,
}

/// The terminal in full-screen mode; dropping it restores what was there.
pub(super) struct Screen {
    terminal: DefaultTerminal,
}

/// All that is shown.
pub(super) struct View<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) samples: &'a [(Sample, bool)],
    /// Each with the time since the start.
    pub(super) events: &'a [(Duration, String)],
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

/// Keys as they are pressed. The reader is a thread, because the terminal is read by blocking calls; it ends with the
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
    let widths = [22, 15, 6, 10, 5, 9, 0];
    draw_table(
        frame,
        top,
        "Instances  (the agent: one for each device it found)",
        (&table::INSTANCE_COLUMNS, &instances, &widths),
    );
    draw_table(
        frame,
        left,
        "Node  (the kubelet: what Pods can ask for)",
        (&table::NODE_COLUMNS, &node, &[32, 8, 0]),
    );
    draw_table(
        frame,
        right,
        "Sockets  (where the kubelet reaches the agent)",
        (&table::SOCKET_COLUMNS, &sockets, &[32, 0]),
    );
    let widths = [46, 20, 8, 26, 0];
    draw_table(
        frame,
        bottom,
        "Brokers  (a Pod for each Instance, and what it was told)",
        (&table::BROKER_COLUMNS, &brokers, &widths),
    );
    draw_events(frame, events, view.events);
    frame.render_widget(Paragraph::new(help(view.samples)), foot);
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

fn help(samples: &[(Sample, bool)]) -> Vec<Line<'static>> {
    let mut keys = vec![Span::raw("keys: ")];
    for (n, (sample, is_announced)) in samples.iter().enumerate() {
        let (verb, color) = if *is_announced {
            ("take away", Color::Green)
        } else {
            ("bring back", Color::Red)
        };
        keys.push(Span::styled(
            format!("{}", n + 1),
            Style::new().add_modifier(Modifier::BOLD),
        ));
        keys.push(Span::raw(format!(" {verb} ")));
        keys.push(Span::styled(
            format!("{}  ", sample.name),
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

/// Column names, rows and column widths of a table.
type Content<'a, const N: usize> = (&'a [&'static str; N], &'a [[String; N]], &'a [u16; N]);

fn draw_table<const N: usize>(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    (columns, rows, widths): Content<'_, N>,
) {
    let header = Row::new(*columns).style(Style::new().add_modifier(Modifier::BOLD));
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
    // The last column takes what is left.
    let widths = (widths.iter().enumerate()).map(|(n, width)| match n + 1 == N {
        true => Constraint::Fill(1),
        false => Constraint::Length(*width),
    });
    let block = Block::new()
        .borders(Borders::TOP)
        .title(format!(" {title} "));
    frame.render_widget(Table::new(rows, widths).header(header).block(block), area);
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, events: &[(Duration, String)]) {
    let room = usize::from(area.height.saturating_sub(1));
    let lines: Vec<Line<'_>> = events[events.len().saturating_sub(room)..]
        .iter()
        .map(|(at, event)| {
            let time = Span::styled(
                format!("{:>7.2} s  ", at.as_secs_f64()),
                Style::new().fg(Color::DarkGray),
            );
            Line::from(vec![time, Span::raw(event.as_str())])
        })
        .collect();
    let block = Block::new().borders(Borders::TOP).title(" Events ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
