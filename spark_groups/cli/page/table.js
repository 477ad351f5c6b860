// A sortable, filterable table. Rows are reused, and only changed cells are written, so that a
// thousand rows stay fast.

import { make, number, setText } from "./text.js";

const collator = new Intl.Collator("en", { numeric: true });

export class Table {
  // columns: {header, text(row), numeric, rare, roomy, order(row), style(row), hint(row), fill(cell, row),
  // total(rows)}; a rare column is hidden while it is empty in every row, a roomy one on a narrow page.
  // Rows are sorted by the column `first`, if there is one.
  constructor(name, columns, keyOf, words) {
    this.columns = columns;
    this.keyOf = keyOf;
    this.words = words;
    this.rows = new Map();
    this.shown = [];
    this.sorted = { column: null, descending: false };
    this.foot = columns.some((each) => each.total) ? make("tfoot", {}, make("tr", {}, ...columns.map(cellOf))) : null;
    this.body = make("tbody");
    this.count = make("span", { class: "quiet" });
    this.heads = columns.map((column, index) => this.head(column, index));
    const first = columns.findIndex((each) => each.first);
    if (first >= 0) this.mark(first, Boolean(columns[first].numeric));
    const head = make("thead", {}, make("tr", {}, ...this.heads));
    const table = make("table", {}, head, this.body, ...[this.foot].filter(Boolean));
    this.title = make("h2", {}, `${name} `, this.count);
    this.element = make("section", { id: name }, this.title, make("div", { class: "scroll" }, table));
  }

  head(column, index) {
    const button = make("button", { type: "button" }, column.header);
    button.addEventListener("click", () => this.sortBy(index));
    return make("th", { scope: "col", class: styles(column) || null }, button);
  }

  sortBy(index) {
    // Numbers sort descending first, names ascending.
    const first = Boolean(this.columns[index].numeric);
    const isSame = this.sorted.column === index;
    this.mark(index, isSame ? !this.sorted.descending : first);
    this.show(this.all, this.matches);
  }

  mark(column, descending) {
    this.sorted = { column, descending };
    this.heads.forEach((head, each) => {
      if (each !== column) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    });
  }

  show(rows, matches) {
    this.all = rows;
    this.matches = matches;
    const kept = rows.filter(matches);
    this.shown = this.order(kept);
    this.columns.forEach((column, index) => {
      this.heads[index].hidden = Boolean(column.rare) && !rows.some(column.text);
    });
    const known = this.rows;
    this.rows = new Map();
    const elements = this.shown.map((row) => {
      const key = this.keyOf(row);
      const element = known.get(key) || make("tr", {}, ...this.columns.map(cellOf));
      this.rows.set(key, element);
      this.fill(element, row);
      return element;
    });
    this.place(elements);
    this.fillFoot(kept);
    const some = kept.length === rows.length ? "" : `${number(kept.length)} of `;
    setText(this.count, `${some}${number(rows.length)}`);
  }

  order(rows) {
    const { column, descending } = this.sorted;
    if (column === null) return rows;
    const of = this.columns[column].order || this.columns[column].text;
    const sign = descending ? -1 : 1;
    // Unknown values come last in both directions.
    return [...rows].sort((a, b) => {
      const [x, y] = [of(a), of(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (typeof x === "string" ? collator.compare(x, y) : x - y);
    });
  }

  fill(element, row) {
    this.columns.forEach((column, index) => {
      const cell = element.children[index];
      cell.hidden = this.heads[index].hidden;
      if (column.fill) column.fill(cell, row);
      else setText(cell, column.text(row));
      const name = styles(column, column.style ? column.style(row) : "");
      if (cell.className !== name) cell.className = name;
      const hint = column.hint ? column.hint(row) : "";
      if (cell.title !== hint) cell.title = hint;
    });
  }

  fillFoot(rows) {
    if (!this.foot) return;
    this.foot.hidden = !rows.length;
    this.columns.forEach((column, index) => {
      const cell = this.foot.firstChild.children[index];
      cell.hidden = this.heads[index].hidden;
      cell.className = styles(column);
      setText(cell, column.total ? column.total(rows) : "");
    });
  }

  place(elements) {
    let next = this.body.firstChild;
    for (const each of elements) {
      if (each === next) next = next.nextSibling;
      else this.body.insertBefore(each, next);
    }
    while (next) {
      const gone = next;
      next = next.nextSibling;
      gone.remove();
    }
    if (!elements.length) {
      const words = this.all.length ? "nothing matches the filter" : this.words;
      const cell = make("td", { colspan: this.columns.length, class: "quiet" }, words);
      this.body.append(make("tr", {}, cell));
    }
  }
}

function cellOf() {
  return make("td");
}

function styles(column, more = "") {
  return [column.numeric ? "number" : "", column.roomy ? "roomy" : "", more].filter(Boolean).join(" ");
}
