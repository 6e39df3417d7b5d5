import { useContext, useEffect, type ReactNode } from "react";
import { Link, useLocation } from "react-router";
import { useSession } from "../api/hooks";
import { Icon } from "../components/icons";
import { ClusterSwitch } from "./ClusterSwitch";
import { EngineBar } from "./EngineBar";
import { ConnectionBar } from "./LostBar";
import { SearchBox } from "./SearchBox";
import { ShellContext } from "./context";
import { ThemeToggle } from "./ThemeToggle";
import { TrustChip } from "./TrustChip";
import { isolated } from "../lib/isolated";

export function TopBar({ title, crumb }: { title: string; crumb?: ReactNode }) {
  const { openDrawer } = useContext(ShellContext);
  const { pathname } = useLocation();
  const session = useSession().data;
  useEffect(() => {
    document.title = `${isolated(title)} · Evenkeel`;
  }, [title]);
  return (
    <>
      <div className="top">
        <button type="button" className="btn ico only-narrow" onClick={openDrawer} aria-label="Menu">
          <Icon name="menu" />
        </button>
        {session?.single_trust_mode && <TrustChip className="only-narrow" />}
        <div className="crumb only-wide">{crumb ?? title}</div>
        <span className="sp only-wide" />
        {session && <ClusterSwitch session={session} />}
        <SearchBox />
        <ThemeToggle />
        {pathname !== "/submit" && (
          <Link to="/submit" className="btn pri" aria-keyshortcuts="c">
            <span>Submit<span className="only-wide"> job</span></span> <kbd>C</kbd>
          </Link>
        )}
      </div>
      <ConnectionBar />
      <EngineBar />
    </>
  );
}
