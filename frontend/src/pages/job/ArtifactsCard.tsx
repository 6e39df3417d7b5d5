import { useArtifacts } from "../../api/hooks";
import type { JobDetail } from "../../api/types";
import { Fault, Panel } from "../../components/Panel";
import { bytes, count, dateTime } from "../../lib/format";
import { hasEnded } from "../../lib/job/jobState";

const SHOWN = 200;

/** Files that the job left, to download. No card where a job left none. */
export function ArtifactsCard({ job }: { job: JobDetail }) {
  const query = useArtifacts(String(job.number), hasEnded(job.state));
  const found = query.data;
  if (query.error && !found) return <Panel title="Artifacts"><Fault what="The list of artifacts" query={query} /></Panel>;
  if (!found || (found.results.length === 0 && found.left_out === 0)) return null;
  return (
    <Panel title="Artifacts" meta={found.next ? `the first ${SHOWN}` : count(found.results.length, "file")} right={found.collecting && hasEnded(job.state) && <span className="sub">more may follow</span>}>
      <div className="tw" tabIndex={0} style={{ maxHeight: 280, overflowY: "auto" }}>
        <table className="t">
          <tbody>
            {found.results.map((file) => (
              <tr key={file.id}>
                <td style={{ overflowWrap: "anywhere" }}><a className="link" href={`/api/v1/jobs/${job.number}/artifacts/${file.id}`} download title={`Kept until ${dateTime(new Date(file.expires_at))}`}>{file.path}</a></td>
                <td className="sub ra">{bytes(file.bytes)}</td>
                <td className="sub ra">{job.runs.length > 1 ? `run ${file.attempt}` : ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {found.left_out > 0 && <p className="empty">{count(found.left_out, "file")} of the newest run not kept: too many, too large or unreadable.</p>}
    </Panel>
  );
}
