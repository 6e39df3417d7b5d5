export default function JobsPage() { return null; }
