//! Draws the screen: the devices, the selected one in detail, and the latest changes. It decides nothing.
use super::state::State;
use crate::{
    inspect::{devices::Device, words::plural},
    screen::{Content, cut, draw_table, titled},
};
use petiole_model::model::printable::printable;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Paragraph, Wrap},
};

/// The columns of the list, and the most characters that each of them gets.
const COLUMNS: [&str; 7] = [
    "NAME", "DEVICE", "HEALTH", "SLOTS", "WHERE", "AGE", "USED BY",
];
const WIDTHS: [u16; 7] = [28, 28, 20, 6, 24, 6, 60];
const DETAIL_LINES: u16 = 7;
const CHANGE_LINES: u16 = 8;

/// The lines that are of no list: the head, the details, and the foot.
const OTHER_LINES: u16 = 2 + DETAIL_LINES + 1 + 1;

/// Draws the state into a part of the screen, below the name of the program.
pub fn draw(frame: &mut Frame<'_>, area: Rect, program: &'static str, state: &State) {
    let devices = state.devices();
    let rows: Vec<_> = devices.iter().map(row).collect();
    let listed = u16::try_from(rows.len() + 3).unwrap_or(u16::MAX);
    let left = area
        .height
        .saturating_sub(OTHER_LINES.saturating_add(listed));
    let [head, list, detail, changes, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(4),
        Constraint::Length(DETAIL_LINES + 1),
        Constraint::Length(left.max(CHANGE_LINES + 1)),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(title(program, state)), head);
    let selected = state.row(&devices);
    let chosen = state.filter.said();
    let title = if state.is_typing || !chosen.is_empty() {
        format!("{} ({chosen})", plural(devices.len(), "device"))
    } else {
        "Devices".to_owned()
    };
    let content = Content {
        title: &title,
        columns: &COLUMNS,
        rows: &rows,
        widths: WIDTHS,
        color: |cells| {
            if cells[2] == Device::HEALTHY {
                Color::Green
            } else {
                Color::Red
            }
        },
        selected,
    };
    draw_table(frame, list, &content);
    let chosen = selected.and_then(|row| devices.get(row));
    let lines = chosen.map_or_else(|| nothing(state), details);
    let paragraph = Paragraph::new(lines).wrap(Wrap { trim: false });
    frame.render_widget(paragraph.block(titled("Selected")), detail);
    let paragraph = Paragraph::new(latest(state, changes));
    let title = match state.started {
        Some(_) => "Changes, newest first",
        None => "Changes, newest first (UTC)",
    };
    frame.render_widget(paragraph.block(titled(title)), changes);
    let help = if state.is_typing {
        format!(
            "search: {}_   Enter done   Esc all devices",
            printable(&state.filter.search)
        )
    } else {
        "keys: ↑ ↓ / search  p problems  n node  c Configuration  s state  Esc all  q quit"
            .to_owned()
    };
    frame.render_widget(Paragraph::new(help), foot);
}

/// Returns the last changes, the newest first.
fn latest(state: &State, area: Rect) -> Vec<Line<'_>> {
    let latest = state.changes.iter().rev().take(area.height.into());
    latest
        .map(|change| {
            let time = state.time(change.at);
            let room = area
                .width
                .saturating_sub(u16::try_from(time.len()).unwrap_or(u16::MAX));
            let time = Span::styled(time, Style::new().fg(Color::DarkGray));
            Line::from(vec![time, Span::raw(cut(&printable(&change.text), room))])
        })
        .collect()
}

fn title<'a>(program: &'static str, state: &'a State) -> Vec<Line<'a>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let head = Line::from(vec![
        Span::styled(program, bold),
        Span::raw(format!("  {}: {}", state.place, state.summary())),
    ]);
    let said = match &state.error {
        Some(error) => Some(Line::styled(printable(error), Style::new().fg(Color::Red))),
        None => (!state.notes.is_empty()).then(|| Line::raw(state.notes.join(" "))),
    };
    [head].into_iter().chain(said).collect()
}

/// Returns what is wrong with a device in a word, or that nothing is.
fn state_of(device: &Device) -> &str {
    device.problem.as_deref().unwrap_or(Device::HEALTHY)
}

fn row(device: &Device) -> [String; 7] {
    let [name, shown, nodes, used, _, _] = device.cells();
    let [slots, _, _, _, age] = device.wide_cells();
    let health = state_of(device).to_owned();
    [name, shown, health, slots, nodes, age, used].map(|cell| printable(&cell))
}

/// Returns what is said instead of a device.
fn nothing(state: &State) -> Vec<Line<'static>> {
    let is_filtered = !state.filter.said().is_empty();
    let text = match (state.has_looked(), is_filtered) {
        (false, _) if state.error.is_some() => "The devices are not known.".to_owned(),
        (false, _) => "Reading …".to_owned(),
        (true, true) => format!("No device is {}. Esc shows all.", state.filter.said()),
        (true, false) => format!("No devices. {}", state.hint),
    };
    vec![Line::from(text)]
}

fn details(device: &Device) -> Vec<Line<'static>> {
    let nodes = device.nodes.iter().map(|node| {
        if node.healthy {
            node.name.clone()
        } else {
            format!("{} (does not see it)", node.name)
        }
    });
    let used = device.used.iter();
    let used = used.map(|used| format!("{} by {}", used.slot, used.cell()));
    let listed = |texts: Vec<String>| {
        if texts.is_empty() {
            "none".to_owned()
        } else {
            texts.join(", ")
        }
    };
    let said = match &device.message {
        Some(message) => format!("{}: {message}", state_of(device)),
        None => state_of(device).to_owned(),
    };
    let health = match device.problem {
        Some(_) => Color::Red,
        None => Color::Green,
    };
    let line = |label: &'static str, text: String, color: Color| {
        let label = Span::styled(format!("{label:<15}"), Style::new().fg(Color::DarkGray));
        let text = Span::styled(printable(&text), Style::new().fg(color));
        Line::from(vec![label, text])
    };
    let path = device.container_path.as_ref();
    let path = path.map(|path| format!("{path} in containers"));
    let address = device.address.clone().or(path);
    let address = address.unwrap_or_else(|| "none".to_owned());
    vec![
        line("Configuration", device.configuration.clone(), Color::Reset),
        line("Resource", device.resource.clone(), Color::Reset),
        line("Address", address, Color::Reset),
        line("Health", said, health),
        line("Nodes", listed(nodes.collect()), Color::Reset),
        line("Slots in use", listed(used.collect()), Color::Reset),
    ]
}

#[cfg(test)]
mod tests {
    use super::{
        super::state::tests::{instance, state},
        *,
    };
    use crate::screen::Key;
    use ratatui::{Terminal, backend::TestBackend};

    fn screen(state: &State) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 30)).unwrap();
        let draw = |frame: &mut Frame<'_>| draw(frame, frame.area(), "petiole top", state);
        terminal.draw(draw).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_narrow_window_shows_who_uses_a_device_and_what_is_wrong_with_the_selected_one() {
        let mut state = state([instance("a", "node-1", true), instance("b", "", false)]);
        // The one with a problem is first.
        state.press(Key::Down);
        let shown = screen(&state);
        for text in [
            "2 devices, 1 with a problem, 1 of 2 slots in use",
            "camera a  Healthy  1/1    node-1",
            "camera b  NotSeen  0/1",
            "Slots in use   a-0 by node-1",
        ] {
            assert!(shown.contains(text), "{text} is not in\n{shown}");
        }
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        let mut found = instance("a", "", true);
        let properties = &mut found.1.spec.broker_properties;
        properties.insert("DEBUG_ECHO_DESCRIPTION".to_owned(), "\x1b[2J".to_owned());
        assert!(screen(&state([found])).contains("\\u{1b}[2J"));
    }

    #[test]
    fn without_devices_the_screen_says_where_to_look_next() {
        assert!(screen(&state([])).contains("No devices. Look at its log."));
        let mut noted = state([]);
        noted.notes = vec!["node-1 has 10 of kvm.".to_owned()];
        assert!(screen(&noted).contains("node-1 has 10 of kvm."));
        assert!(screen(&State::new("here".to_owned(), String::new())).contains("Reading …"));
    }
}
