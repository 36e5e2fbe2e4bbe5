// A client of the driftline sync gateway: works offline, shows its writes at once, syncs when it can.
export { canonicalJson, deltaId } from "./identity.js";
export { Clock, ClockDriftError } from "./clock.js";
export { extract } from "./extraction.js";
export { RowFold, merge } from "./merging.js";
export { Gateway, GatewayError } from "./gateway.js";
export { IndexedDbStorage } from "./indexeddb_storage.js";
export { MemoryStorage } from "./storage.js";
export { Store } from "./store.js";
