// Browsers refuse workers to pages read from the disk. There, run the search in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = `<body><script src="${url}"></script></body>`;
      this.loaded = new Promise((resolve) => this.frame.addEventListener("load", resolve));
      document.body.append(this.frame);
      const answer = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
      this.loaded.then(() => (this.frame.contentWindow.postMessage = answer));
    }
    postMessage(data) {
      const deliver = () =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", {data}));
      this.loaded.then(deliver);
    }
  };
}
