// One group: its current state and its events.

import { EventList } from "./event_list.js";
import { LagHistory } from "./lag_history.js";
import { Ownership } from "./ownership.js";
import { sparkline } from "./sparkline.js";
import { Table } from "./table.js";
import {
  UNKNOWN, behind, catchUp, expiry, make, moment, number, pill, plain, ranges, rate, setText, shortId,
} from "./text.js";

const ALERTS_SHOWN = 10;
const MAY_RETURN = -2;

export class GroupPage {
  constructor() {
    this.names = new Map();
    this.head = make("section", { id: "head" });
    this.alerts = make("section", { id: "alerts", role: "status", hidden: true });
    this.revocations = make("section", { id: "revocations", hidden: true });
    this.members = new Table("members", this.memberColumns(), (row) => row.member_id, "no members");
    this.partitions = new Table(
      "partitions", this.partitionColumns(), (row) => `${row.topic_id} ${row.partition}`,
      "nothing is assigned, and nothing is committed",
    );
    this.ownership = new Ownership();
    this.lag = new LagHistory();
    this.events = new EventList();
    this.onlyLag = this.choice("only-lag", "lag > 0");
    this.onlyMoving = this.choice("only-moving", "moving or without an owner");
    this.partitions.title.append(this.onlyLag.parentNode, this.onlyMoving.parentNode);
    const tables = [this.lag, this.members, this.partitions, this.ownership].map((each) => each.element);
    this.element = make(
      "div", { class: "group" }, this.head, make("div", {}, this.alerts, this.revocations, ...tables), this.events.element,
    );
  }

  choice(id, words) {
    const box = make("input", { type: "checkbox", id });
    box.addEventListener("change", () => this.show(this.frame, this.filter));
    make("label", { for: id }, box, ` ${words}`);
    return box;
  }

  show(frame, filter) {
    this.frame = frame;
    this.filter = filter;
    const group = frame.group;
    if (!group) {
      this.head.replaceChildren(make("p", { class: "quiet" }, `no data yet for ${frame.group_id}`));
      return;
    }
    this.names = new Map(group.members.map((each) => [each.member_id, each]));
    this.clients = counted(group.members.map((each) => each.client_id));
    const rows = group.partitions.map((each, index) => ({ ...each, ...frame.partitions[index] }));
    this.alerting = new Set(frame.alerts.map((each) => `${each.topic} ${each.partition}`));
    this.showHead(frame, group);
    this.showAlerts(frame.alerts);
    this.showRevocations(frame.revocations);
    this.members.show(group.members, (row) => has(filter, this.memberWords(row)));
    this.partitions.show(rows, (row) => this.matches(row, filter));
    this.ownership.show(this.partitions.shown, frame.at_s);
    this.lag.show(frame);
    this.events.show(frame.events, frame.moves);
  }

  memberWords(row) {
    const topics = Object.keys({ ...row.current, ...row.target });
    return [row.client_id, row.member_id, row.instance_id, row.client_host, row.rack_id, ...topics];
  }

  matches(row, filter) {
    if (this.onlyLag.checked && row.lag === 0) return false;
    if (this.onlyMoving.checked && row.owner !== null && row.moves_to === null) return false;
    const people = [row.owner, row.moves_to].map((each) => this.names.get(each));
    const words = people.flatMap((each) => (each ? [each.client_id, each.member_id, each.instance_id] : []));
    return has(filter, [`${row.topic}-${row.partition}`, ...words]);
  }

  name(memberId) {
    const member = this.names.get(memberId);
    return member ? `${member.client_id} ${shortId(member.client_id, memberId)}` : plain(memberId);
  }

  showHead(frame, group) {
    this.head.replaceChildren(
      make("p", { class: "state" }, pill(plain(group.group_state)), ` ${group.state_meaning}`),
      make("dl", {}, ...tiles(frame, group)),
      make("p", { class: "quiet" }, [
        `group epoch ${plain(group.group_epoch)}`,
        `assignment epoch ${plain(group.assignment_epoch)}`,
        `${group.group_type} protocol`,
        `assignor ${plain(group.assignor_name)}`,
        `coordinator ${plain(group.coordinator)}`,
        `authorized operations ${operations(group.authorized_operations)}`,
      ].join(" · ")),
    );
  }

  showAlerts(alerts) {
    this.alerts.hidden = !alerts.length;
    const shown = alerts.slice(0, ALERTS_SHOWN).map((each) => make("p", { class: "alarm" }, each.text));
    const rest = alerts.length - shown.length;
    if (rest) shown.push(make("p", { class: "quiet" }, `and ${number(rest)} more partitions`));
    this.alerts.replaceChildren(make("h2", {}, "alerts"), ...shown);
  }

  showRevocations(revocations) {
    this.revocations.hidden = !revocations.length;
    this.revocations.replaceChildren(
      make("h2", {}, "revocations"), ...revocations.map((each) => revocation(each)));
  }

  memberColumns() {
    return [
      { header: "member", text: (row) => this.name(row.member_id), fill: fillMember, hint: (row) => row.member_id },
      { header: "instance", rare: true, roomy: true, text: (row) => row.instance_id || "" },
      { header: "rack", rare: true, roomy: true, text: (row) => row.rack_id || "" },
      { header: "count", numeric: true, text: (row) => number(size(row.current)), order: (row) => size(row.current) },
      { header: "current", text: (row) => ranges(row.current), style: () => "wide" },
      { header: "target", roomy: true, text: (row) => ranges(row.target), style: () => "wide" },
      { header: "+ pending", rare: true, roomy: true, text: (row) => ranges(row.pending), style: () => "moving" },
      { header: "− to revoke", rare: true, roomy: true, text: (row) => ranges(row.revoking), style: () => "moving" },
      { header: "on this machine", rare: true, text: local, fill: fillLocal, style: () => "wide" },
      { header: "host", roomy: true, text: (row) => row.client_host },
      { header: "epoch", numeric: true, roomy: true, text: memberEpoch, order: (row) => row.member_epoch,
        style: (row) => (row.member_epoch === this.frame.group.group_epoch ? "" : "moving") },
    ];
  }

  partitionColumns() {
    return [
      { header: "partition", text: (row) => `${row.topic}-${row.partition}` },
      { header: "owner", text: (row) => this.ownerName(row), fill: (cell, row) => this.fillOwner(cell, row),
        style: (row) => (row.owner === null ? "alarm" : ""), hint: (row) => row.owner || "" },
      { header: "moves to", rare: true, roomy: true, text: (row) => (row.moves_to === null ? "" : this.name(row.moves_to)),
        style: () => "moving", hint: (row) => since(row) },
      { header: "lag", numeric: true, text: lag, order: (row) => row.lag, hint: lagHint },
      { header: "behind", numeric: true, text: (row) => behind(row.time.seconds_behind),
        order: (row) => row.time.seconds_behind, hint: unreadHint },
      { header: "records expire", rare: true, roomy: true, text: (row) => expiry(row.time),
        order: (row) => row.time.deletion_in_s, hint: () => "when retention may delete unread records",
        style: (row) => (this.alerting.has(`${row.topic} ${row.partition}`) ? "alarm" : "") },
      { header: "lag change", numeric: true, roomy: true, text: (row) => rate(row.trend.lag_rate),
        order: (row) => row.trend.lag_rate },
      { header: "trend", roomy: true, text: () => "", order: (row) => row.trend.lag_rate,
        fill: (cell, row) => sparkline(cell, row.trend.recent_lags, `lag ${lag(row)}`) },
      { header: "committed", numeric: true, roomy: true, text: committed, order: (row) => row.committed_offset },
      { header: "log end", numeric: true, roomy: true, text: (row) => number(row.log_end_offset),
        order: (row) => row.log_end_offset },
      { header: "remark", rare: true, roomy: true, text: (row) => row.remark || row.time.remark, style: () => "alarm" },
    ];
  }

  ownerName(row) {
    return row.owner === null ? "no member" : this.name(row.owner);
  }

  // A narrow page has no column for the next owner, and no ids where client ids tell members apart.
  fillOwner(cell, row) {
    if (!cell.firstChild) {
      const next = make("span", { class: "narrow moving" });
      cell.append(make("span", { class: "roomy" }), make("span", { class: "narrow" }), next);
    }
    const [owner, brief, next] = cell.children;
    setText(owner, this.ownerName(row));
    setText(brief, row.owner === null ? "no member" : this.briefName(row.owner));
    setText(next, row.moves_to === null ? "" : ` → ${this.briefName(row.moves_to)}`);
  }

  briefName(memberId) {
    const member = this.names.get(memberId);
    return member && this.clients.get(member.client_id) === 1 ? member.client_id : this.name(memberId);
  }
}

// The figures that one looks for first, in two rows on a narrow page.
function tiles(frame, group) {
  const { totals } = group;
  const { unassigned_partitions: unassigned, moving_partitions: moving } = totals;
  const unknownTimes = totals.seconds_behind === null ? 0 : totals.unknown_time_partitions;
  const outlook = frame.trend.catch_up;
  return [
    tile("lag", number(totals.lag), { isMain: true, note: unknownOf(totals.unknown_lag_partitions) }),
    tile("behind", behind(totals.seconds_behind), { isMain: true, note: unknownOf(unknownTimes) }),
    tile("members", number(totals.members), { isMain: true }),
    tile("outlook", catchUp(outlook), { style: outlook.outlook === "never catches up" ? "alarm" : "" }),
    tile("unread records expire", soonestExpiry(group),
      { style: frame.alerts.length ? "alarm" : "" }),
    tile("partitions", number(totals.partitions), {
      note: [moving ? `${number(moving)} moving` : "", unassigned ? `${number(unassigned)} unassigned` : ""]
        .filter(Boolean).join(", "),
      style: unassigned ? "alarm" : moving ? "moving" : "",
    }),
  ];
}

// Without a time, what all partitions with unread records have in common.
function soonestExpiry({ totals, partitions }) {
  if (totals.deletion_in_s !== null) return expiry(totals);
  const unread = partitions.filter((row) => row.lag !== 0 && row.time.seconds_behind !== 0);
  const words = new Set(unread.map((row) => expiry(row.time) || UNKNOWN));
  return words.size === 1 ? [...words][0] : UNKNOWN;
}

function tile(name, value, { isMain = false, note = "", style = "" }) {
  const shown = make("dd", { class: style || null }, value);
  if (note) shown.append(make("small", {}, ` (${note})`));
  return make("div", { class: isMain ? "main" : null }, make("dt", {}, name), shown);
}

function unknownOf(partitions) {
  return partitions ? `${number(partitions)} unknown` : "";
}

function has(filter, words) {
  return !filter || words.some((word) => word && word.toLowerCase().includes(filter));
}

function counted(names) {
  const counts = new Map();
  for (const each of names) counts.set(each, (counts.get(each) || 0) + 1);
  return counts;
}

function size(byTopic) {
  return Object.values(byTopic).reduce((sum, each) => sum + each.length, 0);
}

function operations(names) {
  return names === null ? UNKNOWN : names.join(", ") || "none";
}

function memberEpoch(row) {
  return row.member_epoch === MAY_RETURN ? "-2 (left, may return)" : plain(row.member_epoch);
}

function fillMember(cell, row) {
  if (!cell.firstChild) cell.append(make("strong"), " ", make("span", { class: "quiet" }));
  setText(cell.firstChild, row.client_id);
  setText(cell.lastChild, shortId(row.client_id, row.member_id));
}

function committed(row) {
  return row.lag_origin === "log start offset" ? "none" : number(row.committed_offset);
}

function lag(row) {
  return number(row.lag) + (row.lag_origin === "log start offset" && row.lag !== null ? "*" : "");
}

function lagHint(row) {
  return row.lag_origin === "log start offset" ? "no committed offset: lag counts from the log start" : "";
}

function unreadHint(row) {
  const { first_unread_ms: at, first_unread_offset: offset } = row.time;
  return at === null ? "" : `first unread: ${number(offset)}, ${new Date(at).toLocaleString()}`;
}

function since(row) {
  return row.unsettled_since_s === null ? "" : `since ${moment(row.unsettled_since_s)}`;
}

function local(row) {
  if (!row.local) return "";
  const parts = [row.local.state.toLowerCase()];
  if (row.local.in_flight_partitions) {
    parts.push(`a batch of ${number(row.local.in_flight_offsets)} offsets`);
  }
  if (row.local.last_heartbeat_age_s !== null) {
    parts.push(`heartbeat ${row.local.last_heartbeat_age_s.toFixed(1)} s ago`);
  }
  if (row.local.failure) parts.push(row.local.failure);
  return parts.join(", ");
}

// The address comes from a member: it becomes a link only if it is scheme, host and port.
const PLAIN_ADDRESS = /^https?:\/\/([a-z0-9][a-z0-9_.-]*|\[[0-9a-f:.]+\])(:\d{1,5})?$/i;

function fillLocal(cell, row) {
  if (!cell.firstChild) cell.append(make("span"));
  setText(cell.firstChild, local(row));
  const href = row.local?.spark_ui;
  const known = cell.querySelector("a");
  if (known && known.getAttribute("href") === href) return;
  if (known) cell.replaceChildren(cell.firstChild);
  if (href && PLAIN_ADDRESS.test(href)) {
    cell.append(" ", make("a", { href, target: "_blank", rel: "noopener noreferrer" }, "Spark UI"));
  }
}

function revocation(each) {
  const row = make("p", {}, make("strong", {}, each.label), ` revoking ${ranges(each.partitions)} `);
  if (each.budget_used === null) {
    row.append(make("span", { class: "quiet" }, `since ${moment(each.since_s)}, rebalance timeout used: ${UNKNOWN}`));
    return row;
  }
  const meter = make("meter", { min: 0, max: 1, high: 0.7, optimum: 0, value: Math.min(1, each.budget_used) });
  const share = Math.round(each.budget_used * 100);
  const words = ` ${each.age_s.toFixed(1)} of ${each.rebalance_timeout_s} s used (${share} %)`;
  row.append(meter, make("span", { class: "budget" }, words));
  return row;
}
