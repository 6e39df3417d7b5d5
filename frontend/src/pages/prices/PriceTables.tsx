import type { Discount, Rate } from "../../api/types";
import { dateTime, moment, money, trimmed, withUnit } from "../../lib/format";
import { pricedName } from "./prices";

const ends = (at: string | null, now: Date) => (at === null ? <span className="sub" style={{ margin: 0 }}>no end</span> : moment(new Date(at), now));
const full = (at: string | null) => (at === null ? undefined : dateTime(new Date(at)));
const toCome = (from: string, now: Date) => Date.parse(from) > now.getTime() && <span className="chip acc" style={{ marginLeft: 6 }}>to come</span>;

export function RateTable({ rows, now, onSet }: { rows: Rate[]; now: Date; onSet?: (rate: Rate) => void }) {
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead><tr><th scope="col">An hour of</th><th scope="col" className="ra">Price</th><th scope="col" className="ra">From</th><th scope="col" className="ra">Until</th>{onSet && <th scope="col"><span className="vh">Action</span></th>}</tr></thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.id}>
              <td className="wide" style={{ fontWeight: 500 }} title={row.accelerator_type ?? undefined}>{pricedName(row)}{toCome(row.valid_from_at, now)}</td>
              <td className="ra" data-l="Price">{money(row.price_per_hour, row.currency, digitsOf(row.price_per_hour))}<span className="unit"> /h</span></td>
              <td className="ra" data-l="From" title={full(row.valid_from_at)}>{moment(new Date(row.valid_from_at), now)}</td>
              <td className="ra" data-l="Until" title={full(row.valid_to_at)}>{ends(row.valid_to_at, now)}</td>
              {onSet && <td className="ra"><button type="button" className="btn sm" aria-label={`Set another price of ${pricedName(row)}`} onClick={() => onSet(row)}>Set another</button></td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** As many digits after the point as a price has, two at least. */
function digitsOf(price: string): number {
  return Math.max(2, (price.split(".")[1] ?? "").replace(/0+$/, "").length);
}

export function DiscountTable({ rows, now }: { rows: Discount[]; now: Date }) {
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead><tr><th scope="col">Project</th><th scope="col" className="ra">Discount</th><th scope="col" className="ra">From</th><th scope="col" className="ra">Until</th></tr></thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.id}>
              <td className="wide" style={{ fontWeight: 500 }}>{row.project}{toCome(row.valid_from_at, now)}</td>
              <td className="ra" data-l="Discount">{Number(row.percent) === 0 ? "none" : withUnit(trimmed(Number(row.percent)), "%")}</td>
              <td className="ra" data-l="From" title={full(row.valid_from_at)}>{moment(new Date(row.valid_from_at), now)}</td>
              <td className="ra" data-l="Until" title={full(row.valid_to_at)}>{ends(row.valid_to_at, now)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
