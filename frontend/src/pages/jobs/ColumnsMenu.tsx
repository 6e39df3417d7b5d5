import { Popover } from "@mantine/core";
import type { JobColumn } from "../../api/types";
import { Icon } from "../../components/icons";
import { COLUMN_ORDER, JOB_COLUMNS, USUAL_COLUMNS } from "../../lib/job/jobColumns";
import css from "./jobs.module.css";

/** Which columns the table has; one at least. */
export function ColumnsMenu({ columns, onChange }: { columns: JobColumn[]; onChange: (columns: JobColumn[]) => void }) {
  const toggle = (column: JobColumn) => onChange(COLUMN_ORDER.filter((one) => (one === column) !== columns.includes(one)));
  return (
    <Popover position="bottom-end" shadow="none" trapFocus returnFocus>
      <Popover.Target><button type="button" className="btn sm"><Icon name="sliders" size={14} />Columns</button></Popover.Target>
      <Popover.Dropdown p={0} aria-label="Columns">
        <div className={css.columns}>
          {COLUMN_ORDER.map((column) => (
            <label key={column}>
              <input type="checkbox" checked={columns.includes(column)} disabled={columns.length === 1 && columns.includes(column)} onChange={() => toggle(column)} />{JOB_COLUMNS[column].label}
            </label>
          ))}
          <button type="button" className="btn sm" onClick={() => onChange(USUAL_COLUMNS)}>The usual ones</button>
        </div>
      </Popover.Dropdown>
    </Popover>
  );
}
