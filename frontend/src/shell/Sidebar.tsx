import { Menu } from "@mantine/core";
import { NavLink, useLocation } from "react-router";
import { useSignOut } from "../api/hooks";
import type { Session } from "../api/types";
import { Icon, Logo, type IconName } from "../components/icons";
import { count, duration, percent, trimmed, variance } from "../lib/format";
import { useCluster, useConnection } from "../lib/live/liveContext";
import { setPreferences, usePreferences } from "../lib/preferences";
import { useNow } from "../lib/clock";
import { useShownCluster } from "./ClusterSwitch";
import { TrustChip } from "./TrustChip";
import { isolated } from "../lib/isolated";

function Item({ to, icon, label, n }: { to: string; icon: IconName; label: string; n?: number | undefined }) {
  const { pathname } = useLocation();
  const alone = to === "/" || (to === "/cluster" && !pathname.startsWith("/cluster/nodes/"));
  return (
    <NavLink to={to} end={alone} className={({ isActive }) => (isActive ? "nav on" : "nav")}>
      <Icon name={icon} />
      {label}
      {n !== undefined && n > 0 && <span className="n">{n}</span>}
    </NavLink>
  );
}

function LiveMark() {
  const { phase } = useConnection();
  const cluster = useCluster();
  const now = useNow();
  if (phase === "lost") return <span className="live off"><i /><b>Not live</b></span>;
  if (phase !== "live") return <span className="live off"><i />Connecting</span>;
  const last = cluster?.cluster.last_event_at;
  const age = last ? Math.max(0, (now.getTime() - Date.parse(last)) / 1000) : null;
  return <span className="live" data-testid="live"><i /><span><b>Live</b>{age !== null && `, last event ${duration(age)} ago`}</span></span>;
}

function PolicyInForceNote() {
  const cluster = useCluster();
  const policy = cluster?.cluster.policy;
  if (!policy) return null;
  const gain = policy.parameters.min_gain;
  const facts = [
    policy.v_bound !== null && policy.v_bound !== undefined ? `bound ${variance(policy.v_bound)}` : "",
    typeof gain === "number" ? `min gain ${policy.parameters.min_gain_kind === "relative" ? percent(gain) : `${trimmed(gain)} steps/s`}` : "",
  ].filter(Boolean);
  return (
    <div>
      <small>Policy in force</small>
      <b className="mono">{policy.name}</b>
      {facts.length > 0 && <small>{facts.join(", ")}</small>}
    </div>
  );
}

function Me({ session, onKeys }: { session: Session; onKeys: () => void }) {
  const signOut = useSignOut();
  const { hour12 } = usePreferences();
  const name = session.user?.name || session.user?.email || "";
  const initials = name.split(/[\s@.]+/).slice(0, 2).map((part) => part.charAt(0).toUpperCase()).join("");
  return (
    <Menu position="top-start" width={190}>
      <Menu.Target>
        <button type="button" className="me" title={`Account of ${isolated(name)}`}>
          <span className="face" aria-hidden>{initials}</span>
          <b className="ell"><bdi>{name}</bdi></b>
        </button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>{session.user?.email}</Menu.Label>
        <Menu.Item onClick={() => setPreferences({ hour12: !hour12 })}>{hour12 ? "Show times in 24 hours" : "Show times as am and pm"}</Menu.Item>
        <Menu.Item onClick={onKeys}>Keys</Menu.Item>
        <Menu.Item component="a" href="/api/docs">API documentation</Menu.Item>
        <Menu.Divider />
        <Menu.Item onClick={() => signOut.mutate()}>Sign out</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}

export function Sidebar({ session, onKeys }: { session: Session; onKeys: () => void }) {
  const cluster = useCluster();
  const running = cluster?.tiles.running;
  const nodes = cluster ? Object.keys(cluster.nodes).length : session.cluster.nodes;
  const gpus = (cluster ? cluster.tiles.gpus_total + cluster.tiles.gpus_others : session.cluster.gpus);
  return (
    <nav className="side" aria-label="Main">
      <NavLink to="/" className="brand"><Logo />Evenkeel</NavLink>
      <div className="where">
        {useShownCluster(session)?.name ?? session.cluster.name}
        <small>{count(nodes, "node")}, {count(gpus, "GPU")}</small>
      </div>
      <Item to="/" icon="home" label="Overview" />
      <Item to="/jobs" icon="jobs" label="Jobs" n={running} />
      <Item to="/submit" icon="plus" label="Submit" />
      <Item to="/projects" icon="folder" label="Projects" />
      <Item to="/shares" icon="scales" label="Fair share" />
      <Item to="/fairness" icon="even" label="Fairness" />
      <Item to="/usage" icon="chart" label="Usage and cost" />
      <Item to="/limits" icon="lock" label="Limits" />
      <Item to="/cluster" icon="node" label="Cluster" />
      <Item to="/cluster/throughput" icon="speed" label="Throughput" />
      <Item to="/lab" icon="flask" label="Policy lab" />
      <Item to="/notifications" icon="bell" label="Notifications" />
      <Item to="/tokens" icon="key" label="API tokens" />
      {session.user?.is_admin && (
        <>
          <div className="navh">Administration</div>
          <Item to="/policy" icon="sliders" label="Policy" />
          <Item to="/admin/people" icon="people" label="People" />
          <Item to="/admin/prices" icon="coin" label="Prices" />
          <Item to="/admin/audit" icon="list" label="Audit log" />
          <a href="/admin/" className="nav" title="Django's own pages for all tables"><Icon name="table" />Django admin</a>
        </>
      )}
      <div className="foot">
        <PolicyInForceNote />
        <Notices session={session} />
        <LiveMark />
        <Me session={session} onKeys={onKeys} />
      </div>
    </nav>
  );
}

/** What everybody should know about this installation, on every page. */
function Notices({ session }: { session: Session }) {
  if (!session.emulated && !session.single_trust_mode && session.speedup === 1) return null;
  return (
    <div className="notices">
      {session.emulated && <span className="chip o" title="Accelerators here are virtual: training is real, its pace follows the catalogue">emulated</span>}
      {session.speedup !== 1 && <span className="chip o" title="Steps per second are multiplied by this">{trimmed(session.speedup)} × speed-up</span>}
      {session.single_trust_mode && <TrustChip />}
    </div>
  );
}
