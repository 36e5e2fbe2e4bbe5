
let parts;
const packed = () => Uint8Array.from(atob(document.getElementById("parts").textContent), c => c.charCodeAt(0));
const stream = () => new Blob([packed()]).stream().pipeThrough(new DecompressionStream("deflate"));
addEventListener("toggle", async event => {
  const place = event.target;
  if (!place.open || !place.dataset.part || place.dataset.filled) return;
  place.dataset.filled = "1";
  parts ??= new Response(stream()).json();
  place.lastElementChild.innerHTML = (await parts)[place.dataset.part];
}, true);
