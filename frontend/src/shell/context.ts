import { createContext } from "react";

export const ShellContext = createContext<{ openDrawer: () => void }>({ openDrawer: () => undefined });
