// What the reference daemon adds up to, an interval a line; it loads this file as one of its backends.
const fs = require('fs');

exports.init = (started, config, emitter) => {
  emitter.on('flush', (timestamp, metrics) => {
    const sets = {};
    for (const name in metrics.sets) sets[name] = metrics.sets[name].size();
    const { counters, counter_rates, gauges, timer_data } = metrics;
    fs.appendFileSync(config.results, JSON.stringify({ counters, counter_rates, gauges, sets, timer_data }) + '\n');
  });
  return true;
};
