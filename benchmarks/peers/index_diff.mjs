// The plain way to diff two code indexes in JavaScript: read file_meta, load every chunk row, compare the chunks of
// changed files. Prints how many files, chunks and edges changed.
import { createReadStream, readFileSync, readdirSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { join } from 'node:path';

const [oldRoot, newRoot] = process.argv.slice(2).map((root) => join(root, 'index-code'));

const readFiles = (root) => new Map(JSON.parse(readFileSync(join(root, 'file_meta.json'), 'utf8')).map((row) => [row.file, row]));

const readChunks = async (root) => {
  const byFile = new Map();
  for (const name of readdirSync(join(root, 'chunk_meta.parts')).sort()) {
    const lines = createInterface({ input: createReadStream(join(root, 'chunk_meta.parts', name)), crlfDelay: Infinity });
    for await (const line of lines) {
      const row = JSON.parse(line);
      const rows = byFile.get(row.file);
      if (rows) rows.push(row);
      else byFile.set(row.file, [row]);
    }
  }
  return byFile;
};

const keyOf = (row) => [row.segment?.segmentId ?? '', row.kind, row.name, row.metaV2?.signature ?? ''].join('|');
const meaningOf = (row) => JSON.stringify([row.kind, row.name, row.metaV2?.signature, row.metaV2?.modifiers, row.metaV2?.params]);
const rangeOf = (row) => [row.start, row.end, row.startLine, row.endLine].join();
const edgesOf = (row) => new Set([
  ...(row.codeRelations?.imports ?? []).map((name) => `imports|${name}`),
  ...(row.codeRelations?.calls ?? []).map(([, callee]) => `calls|${callee}`),
  ...(row.codeRelations?.usageLinks ?? []).map((link) => `usageLinks|${link.to.targetName}`),
]);

const oldFiles = readFiles(oldRoot);
const newFiles = readFiles(newRoot);
const oldChunks = await readChunks(oldRoot);
const newChunks = await readChunks(newRoot);
const counts = { files: 0, chunks: 0, edges: 0 };
for (const [file, row] of newFiles) {
  if (oldFiles.get(file)?.hash === row.hash) continue;
  counts.files += 1;
  const byId = new Map((oldChunks.get(file) ?? []).map((chunk) => [chunk.metaV2?.chunkId ?? keyOf(chunk), chunk]));
  for (const chunk of newChunks.get(file) ?? []) {
    const before = byId.get(chunk.metaV2?.chunkId ?? keyOf(chunk));
    if (!before) { counts.chunks += 1; continue; }
    if (meaningOf(before) !== meaningOf(chunk) || rangeOf(before) !== rangeOf(chunk)) counts.chunks += 1;
    const gone = edgesOf(before);
    for (const edge of edgesOf(chunk)) if (!gone.delete(edge)) counts.edges += 1;
    counts.edges += gone.size;
  }
}
console.log(JSON.stringify(counts));
