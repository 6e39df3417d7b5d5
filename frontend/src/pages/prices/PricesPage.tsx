import { useState } from "react";
import { useDiscounts, useRates } from "../../api/adminHooks";
import { rowsOf } from "../../api/pages";
import type { Rate, Session } from "../../api/types";
import { Icon } from "../../components/icons";
import { More } from "../../components/More";
import { After, Loadable, Panel, SentenceWaits, Skeleton } from "../../components/Panel";
import { useNow } from "../../lib/clock";
import { moment, money } from "../../lib/format";
import { TopBar } from "../../shell/TopBar";
import { byWhat, inForce, pricedName } from "./prices";
import { DiscountForm } from "./DiscountForm";
import { DiscountTable, RateTable } from "./PriceTables";
import { PriceForm } from "./PriceForm";

/** What an hour costs, and who pays less. */
export default function PricesPage({ session }: { session: Session }) {
  const query = useRates(false);
  const discounts = useDiscounts(false);
  return (
    <>
      <TopBar title="Prices" />
      <div className="page">
        {query.data ? <Sentence rows={rowsOf(query.data)} currency={session.currency} /> : <SentenceWaits />}
        <Prices />
        <After until={[query, discounts]}><Discounts /></After>
      </div>
    </>
  );
}

function Sentence({ rows, currency }: { rows: Rate[]; currency: string }) {
  const { present, later } = inForce(rows, useNow(30_000));
  const gpus = present.filter((row) => row.resource === "gpu").sort((a, b) => Number(a.price_per_hour) - Number(b.price_per_hour));
  const [low, high] = [gpus[0], gpus.at(-1)];
  const next = later[0];
  const coming = next ? ` The next price, ${money(next.price_per_hour, currency)} for a ${pricedName(next)}, begins ${moment(new Date(next.valid_from_at), new Date())}.` : " No other price is set for later.";
  if (!low || !high) return <h1 className="say"><b>No GPU has a price</b>, so jobs cost nothing.{coming}</h1>;
  if (low.price_per_hour === high.price_per_hour) return <h1 className="say"><b>A GPU-hour costs {money(low.price_per_hour, currency)}</b>.{coming}</h1>;
  return <h1 className="say"><b>A GPU-hour costs {money(low.price_per_hour, currency)} to {money(high.price_per_hour, currency)}</b>, from {pricedName(low)} to {pricedName(high)}.{coming}</h1>;
}

function Prices() {
  const query = useRates(false);
  const [old, setOld] = useState(false);
  const past = useRates(true, old);
  const [setting, setSetting] = useState<Rate | "new" | null>(null);
  const now = useNow(30_000);
  return (
    <>
      <Panel title="Prices" meta="per hour, before discounts" right={<button type="button" className="btn sm" onClick={() => setSetting("new")}><Icon name="plus" size={12} />New price</button>}>
        <Loadable query={query} what="The list of prices" skeleton={<Skeleton height={26} count={4} />}>
          {(data) => {
            const { present, later } = inForce(rowsOf(data), now);
            return present.length + later.length === 0 ? <p className="empty">Nothing has a price.</p> : <RateTable rows={[...byWhat(present), ...later]} now={now} onSet={setSetting} />;
          }}
        </Loadable>
        <More query={query} label="More prices" />
        <After until={[query]}><Earlier open={old} onToggle={() => setOld(!old)} label="earlier prices" /></After>
        {old && (
          <Loadable query={past} what="The list of earlier prices" skeleton={<Skeleton height={26} count={3} />}>
            {(data) => rowsOf(data).length === 0 ? <p className="empty">No price has ended yet.</p> : <RateTable rows={rowsOf(data)} now={now} />}
          </Loadable>
        )}
        {old && <More query={past} label="Older prices" />}
      </Panel>
      {setting !== null && <PriceForm rate={setting === "new" ? null : setting} onClose={() => setSetting(null)} />}
    </>
  );
}

function Discounts() {
  const query = useDiscounts(false);
  const [old, setOld] = useState(false);
  const past = useDiscounts(true, old);
  const [setting, setSetting] = useState(false);
  const now = useNow(30_000);
  return (
    <>
      <Panel title="Discounts" meta="of a project and all below that have none of their own" right={<button type="button" className="btn sm" onClick={() => setSetting(true)}><Icon name="plus" size={12} />New discount</button>}>
        <Loadable query={query} what="The list of discounts" skeleton={<Skeleton height={26} count={2} />}>
          {(data) => rowsOf(data).length === 0 ? <p className="empty">No project has a discount.</p> : <DiscountTable rows={rowsOf(data)} now={now} />}
        </Loadable>
        <More query={query} label="More discounts" />
        <After until={[query]}><Earlier open={old} onToggle={() => setOld(!old)} label="earlier discounts" /></After>
        {old && (
          <Loadable query={past} what="The list of earlier discounts" skeleton={<Skeleton height={26} count={2} />}>
            {(data) => rowsOf(data).length === 0 ? <p className="empty">No discount has ended yet.</p> : <DiscountTable rows={rowsOf(data)} now={now} />}
          </Loadable>
        )}
        {old && <More query={past} label="Older discounts" />}
      </Panel>
      {setting && <DiscountForm onClose={() => setSetting(false)} />}
    </>
  );
}

function Earlier({ open, onToggle, label }: { open: boolean; onToggle: () => void; label: string }) {
  return <button type="button" className="more" aria-expanded={open} style={{ padding: 8 }} onClick={onToggle}>{open ? "Hide" : "Show"} {label}</button>;
}
