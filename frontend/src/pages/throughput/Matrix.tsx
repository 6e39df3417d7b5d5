import { Modal, Tooltip } from "@mantine/core";
import { useState } from "react";
import { CurveChart } from "../../components/CurveChart";
import { SourceMark } from "./SourceMark";
import type { ModelType } from "../../api/types";
import { duration, number, typeName } from "../../lib/format";
import { chartOf, sayCell, SOURCE_WORDS, type Cell, type Row } from "./throughputMatrix";
import css from "./throughput.module.css";

/** A page of programs; more come on demand. */
const AT_ONCE = 25;

/** Programs against accelerator types or counts. */
export function Matrix({ heads, rows }: { heads: string[]; rows: Row[] }) {
  const [shown, setShown] = useState(AT_ONCE);
  const [open, setOpen] = useState<{ model: ModelType; cell: Cell } | null>(null);
  return (
    <>
      <div className="tw" tabIndex={0}>
        <table className="t cards">
          <thead>
            <tr><th scope="col">Program</th>{heads.map((head) => <th key={head} scope="col" className="ra">{head}</th>)}</tr>
          </thead>
          <tbody>
            {rows.slice(0, shown).map(({ model, cells }) => (
              <tr key={model.name}>
                <td className="wide" style={{ fontWeight: 500 }}>{model.title} <span className="sub mono" style={{ fontWeight: 400 }}>{model.name}</span></td>
                {cells.map((cell, i) => (
                  <td key={heads[i]} className={`ra whole ${css.cell}`} data-l={heads[i]}>
                    {cell ? <Speed cell={cell} onOpen={() => setOpen({ model, cell })} /> : <span className="sub">not known</span>}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > shown && <button type="button" className="more" style={{ padding: 8 }} onClick={() => setShown(shown + AT_ONCE)}>More programs</button>}
      {open && (
        <Modal opened onClose={() => setOpen(null)} title={`${open.model.title} on ${typeName(open.cell.type)}`} size={640} closeButtonProps={{ "aria-label": "Close" }}>
          <CurveChart curves={chartOf(open.model, open.cell.type)} start={open.cell.count} />
        </Modal>
      )}
    </>
  );
}

/** The number, its share of the best type's, and what it rests on by form and word; age and samples on pointing and focus. */
function Speed({ cell, onOpen }: { cell: Cell; onOpen: () => void }) {
  const said = sayCell(cell);
  if (cell.stepsPerS === 0) return <span className="sub" title={said}>does not fit</span>;
  const word = cell.between ? "between" : SOURCE_WORDS[cell.source];
  return (
    <Tooltip label={said} multiline maw={320} events={{ hover: true, focus: true, touch: true }}>
      <button type="button" className={css.speed} onClick={onOpen}>
        <span className="vh">{said}. </span>
        <span className={cell.best ? css.best : undefined}>{cell.best && "▲ "}{number(cell.stepsPerS)}</span>
        <span className={css.basis}>
          {cell.relative !== null && !cell.best && <span>{number(cell.relative, 2)} ×</span>}
          <SourceMark source={cell.source} />{word}{cell.ageS !== null && `, ${duration(cell.ageS)}`}
        </span>
      </button>
    </Tooltip>
  );
}
