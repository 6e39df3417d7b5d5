import { Drawer } from "@mantine/core";
import { useEffect, useState, type ReactNode } from "react";
import { useLocation, useNavigate } from "react-router";
import type { Session } from "../api/types";
import { useKeys, walkRows } from "../lib/keys";
import { useConnection, useWatch } from "../lib/live/liveContext";
import { usePreferences } from "../lib/preferences";
import { useClusterInAddress } from "./ClusterSwitch";
import { KeysHelp } from "./KeysHelp";
import { LostBar } from "./LostBar";
import { ShellContext } from "./context";
import { Sidebar } from "./Sidebar";
import { useThemeCycle } from "./ThemeToggle";

export function Shell({ session, children }: { session: Session; children: ReactNode }) {
  useClusterInAddress(session);
  useWatch();
  usePreferences();
  const { phase } = useConnection();
  const navigate = useNavigate();
  const { pathname } = useLocation();
  const [help, setHelp] = useState(false);
  const [drawer, setDrawer] = useState(false);
  const cycleTheme = useThemeCycle();
  useEffect(() => setDrawer(false), [pathname]);
  useKeys({
    c: () => void navigate("/submit"),
    "g o": () => void navigate("/"),
    "g j": () => void navigate("/jobs"),
    "g s": () => void navigate("/submit"),
    "g f": () => void navigate("/shares"),
    "g e": () => void navigate("/fairness"),
    "g r": () => void navigate("/projects"),
    "g u": () => void navigate("/usage"),
    "g l": () => void navigate("/limits"),
    "g c": () => void navigate("/cluster"),
    "g n": () => void navigate("/notifications"),
    "g t": () => void navigate("/tokens"),
    ...(session.user?.is_admin ? { "g p": () => void navigate("/policy") } : {}),
    j: () => walkRows(1),
    k: () => walkRows(-1),
    t: cycleTheme,
    "?": () => setHelp(true),
    "/": () => document.getElementById("search")?.focus(),
  });
  return (
    <ShellContext value={{ openDrawer: () => setDrawer(true) }}>
      <a className="skip" href="#content">To the content</a>
      <div className="app" data-lost={phase === "lost" || undefined}>
        <Sidebar session={session} onKeys={() => setHelp(true)} />
        <main className="main" id="content">
          {children}
        </main>
      </div>
      <Drawer.Root opened={drawer} onClose={() => setDrawer(false)} size={232} padding={0}>
        <Drawer.Overlay />
        <Drawer.Content aria-label="Navigation">
          <Sidebar session={session} onKeys={() => setHelp(true)} />
        </Drawer.Content>
      </Drawer.Root>
      <KeysHelp opened={help} onClose={() => setHelp(false)} admin={session.user?.is_admin ?? false} />
      <LostBar />
    </ShellContext>
  );
}
