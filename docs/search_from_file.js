// Search where the site is opened as a file: browsers start no worker there and read no JSON, so that the index is a
// script (docs/site_hooks.py writes it) and the search runs in the page. main.js of MkDocs sees a worker.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.folder = address.replace(/[^/]*$/, "");
    }

    load(name) {
      return new Promise((resolve, reject) => {
        const script = document.createElement("script");
        Object.assign(script, {src: this.folder + name, onload: resolve, onerror: reject});
        document.head.append(script);
      });
    }

    async start() {
      await this.load("lunr.js");
      await this.load("search_index.js");
      const {config, docs} = window.siteSearchIndex;
      lunr.tokenizer.separator = new RegExp(config.separator);
      this.pages = new Map(docs.map(page => [page.location, page]));
      this.index = lunr(function () {
        this.ref("location");
        this.field("title", {boost: 10});
        this.field("text");
        for (const page of docs) this.add(page);
      });
      this.onmessage({data: {config}});
      this.onmessage({data: {allowSearch: true}});
    }

    found(query) {
      try {
        return this.index.search(query);
      } catch {
        return [];  // what is typed is no query of lunr's
      }
    }

    postMessage(message) {
      if (message.init) {
        this.start();
        return;
      }
      const results = this.found(message.query).map(({ref}) => {
        const {location, title, text} = this.pages.get(ref);
        return {location, title, summary: text.slice(0, 200)};
      });
      this.onmessage({data: {results}});
    }
  };
}
