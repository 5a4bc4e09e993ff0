import "./report.css"; console.log("hi");
