import { useStorage } from "../../api/projectHooks";
import type { ProjectDetail, Storage } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { UsedBar } from "../../components/UsedBar";
import { bytes } from "../../lib/format";

/** What the project keeps on disk, against how much it may. */
export function StoragePanel({ project }: { project: ProjectDetail }) {
  const query = useStorage(project.key);
  return (
    <Panel title="Stored" meta="on disk, without projects below">
      <Loadable query={query} what="What is stored" skeleton={<Skeleton height={26} count={4} />}>
        {(found) => (
          <div className="tw" tabIndex={0}>
            <table className="t cards">
              <thead><tr><th scope="col">What</th><th scope="col" className="ra">Stored</th><th scope="col" className="ra">At most</th><th scope="col" style={{ width: 150 }}>Part used</th></tr></thead>
              <tbody>{rowsOf(found).map((row) => <Row key={row.what} {...row} />)}</tbody>
            </table>
          </div>
        )}
      </Loadable>
    </Panel>
  );
}

interface Kept {
  what: string;
  stored: number;
  most: number | null;
}

const rowsOf = (found: Storage): Kept[] => [
  { what: "Checkpoints", stored: found.checkpoints.bytes, most: found.checkpoints.hard_bytes },
  { what: "Artifacts", stored: found.artifacts.bytes, most: found.artifacts.quota_bytes },
  { what: "Bundles of code", stored: found.bundles.bytes, most: found.bundles.quota_bytes },
  { what: "Environments", stored: found.environments.bytes, most: found.environments.quota_bytes },
];

function Row({ what, stored, most }: Kept) {
  const part = most === null ? null : Math.floor((100 * stored) / Math.max(1, most));
  return (
    <tr>
      <td className="wide" style={{ fontWeight: 500 }}>{what}</td>
      <td className="ra" data-l="Stored">{bytes(stored)}</td>
      <td className="ra" data-l="At most">{most === null ? <span className="sub" style={{ margin: 0 }}>no limit</span> : bytes(most)}</td>
      <td className="whole" data-l="Part used">{part === null ? <span className="sub" style={{ margin: 0 }}>–</span> : <UsedBar percent={part} bad={part >= 100} />}</td>
    </tr>
  );
}
