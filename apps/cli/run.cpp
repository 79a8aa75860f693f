#include "run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/registry.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/io/files.hpp"
#include "lab/experiment/experiment.hpp"
#include "lab/experiment/model_parameters.hpp"
#include "lab/experiment/properties.hpp"
#include "lab/experiment/result_files.hpp"
#include "lab/sweep/grid_file.hpp"
#include "models.hpp"
#include "option_text.hpp"
#include "progress_bar.hpp"
#include "say.hpp"
#include "terminal.hpp"
#ifdef FP8LAB_WITH_MPI
#include "lab/mpi/fabric.hpp"
#endif

namespace fp8lab::cli {
namespace {

constexpr const char* kDefaultOut = "out";
// A table up to this long is printed whole, of a longer one a sample is enough.
constexpr std::size_t kWholeRows = 40;
constexpr std::size_t kSampleRows = 8;

struct RunArguments {
  std::vector<std::string> names;
  std::vector<std::string> assignments;
  ModelFiles models;
  std::string out = kDefaultOut;
  std::vector<Backend> backends;
  std::string backend;
  std::optional<std::uint64_t> given_seed;
  std::uint64_t seed = 1;
  int threads = 0;  ///< all
  bool quick = false;
  bool no_plots = false;
  bool json = false;
  bool mpi = false;
  bool verbose = false;  ///< prints tables
};

/// A run file in the place of a name: what it says, under what the command line says on top.
void read_run_file(RunArguments& options) {
  const auto is_file = [](const std::string& name) { return name.ends_with(".toml"); };
  if (std::none_of(options.names.begin(), options.names.end(), is_file)) return;
  const std::string path = options.names.front();
  require(options.names.size() == 1, "NAME", "a single run file, or names",
          fmt::format("{} of them", options.names.size()));
  const GridFile file = parse_grid_file(read_file(path));
  require(file.experiment.has_value(), path, "experiment = \"NAME\"", "none");
  require(file.axes.empty() && !file.repeats, path, "no [axes] and no repeat (they are for sweep)",
          file.axes.empty() ? "repeat" : "[axes]");
  options.names = {*file.experiment};
  options.quick |= file.quick.value_or(false);
  options.seed = file.seed.value_or(options.seed);
  options.assignments.insert(options.assignments.begin(), file.assignments.begin(),
                             file.assignments.end());
}

/// The process's part in a run that may have several.
struct Part {
  Fabric* fabric = nullptr;  ///< null: this process is the whole run
  int processes = 1;
  bool speaks = true;                          ///< shows progress, prints and writes
  std::function<void()> wait_for_all = [] {};  ///< returns when every process has come here
};

/// One experiment with its parameters, made before anything runs: a wrong name
/// or value in the last one must not cost the time of the first.
struct Job {
  const Experiment* experiment;
  Parameters parameters;
  std::vector<std::string> set_keys;
};

std::vector<Job> jobs_of(const RunArguments& options) {
  std::vector<std::string_view> names;
  for (const std::string& name : options.names) {
    if (name == "all")
      for (const Experiment& experiment : all_experiments()) names.push_back(experiment.name);
    else
      names.push_back(find_experiment(name).name);
  }
  std::vector<Job> jobs;
  for (const std::string_view name : names) {
    const bool again = std::any_of(jobs.begin(), jobs.end(),
                                   [&](const Job& job) { return job.experiment->name == name; });
    if (again) continue;
    const Experiment& experiment = find_experiment(name);
    jobs.push_back(
        {&experiment, Parameters::from_toml(experiment.default_toml, options.quick), {}});
  }
  require(!jobs.empty(), "NAME", "an experiment (this build has none)", "all");
  return jobs;
}

/// `name.key=value`, or `key=value` where one experiment runs alone.
void apply(std::vector<Job>& jobs, const std::string& assignment) {
  const std::string before = assignment.substr(0, assignment.find('='));
  // A dot comes after the experiment's name, and before the part of a model.
  auto dot = before.find('.');
  const bool names_part = jobs.size() == 1 && dot != std::string::npos &&
                          before.substr(0, dot) != jobs.front().experiment->name;
  if (names_part) dot = std::string::npos;
  if (dot == std::string::npos && jobs.size() > 1)
    throw Error("set", "EXPERIMENT.key=value if several experiments run",
                fmt::format("'{}'", assignment));
  Job* job = &jobs.front();
  if (dot != std::string::npos) {
    const std::string name = before.substr(0, dot);
    const auto found = std::find_if(jobs.begin(), jobs.end(), [&](const Job& candidate) {
      return candidate.experiment->name == name;
    });
    require(found != jobs.end(), "set", "the name of an experiment that runs",
            fmt::format("'{}'", name));
    job = &*found;
  }
  const std::size_t start = dot == std::string::npos ? 0 : dot + 1;
  job->parameters.set(assignment.substr(start));
  const std::string key(parameter_part(std::string_view(before).substr(start)).key);
  if (std::find(job->set_keys.begin(), job->set_keys.end(), key) == job->set_keys.end())
    job->set_keys.push_back(key);
}

std::string command_of(const RunArguments& options, const Part& part, const Job& job) {
  // Other backends are fp8lab-cuda's, which has this command too.
  const bool on_cpu = options.backend == Backend{}.name;
  std::string command = fmt::format("{} run {} --seed {}", on_cpu ? "fp8lab" : "fp8lab-cuda",
                                    job.experiment->name, options.seed);
  if (!on_cpu) command += " --backend " + options.backend;
  if (options.quick) command += " --quick";
  for (const std::string& key : job.set_keys)
    command += " --set " + shell_quoted(key + "=" + job.parameters.to_toml(key));
  if (options.out != kDefaultOut) command += " --out " + shell_quoted(options.out);
  if (options.no_plots) command += " --no-plots";
  if (options.mpi) command = fmt::format("mpirun -n {} {} --mpi", part.processes, command);
  return command;
}

void print_tables(const Results& results, const WrittenRun& run) {
  for (const Table& table : results.tables) {
    const bool whole = table.rows().size() <= kWholeRows;
    fmt::print("{}", table.text(whole ? 0 : kSampleRows));
    if (!whole)
      say("  all {} rows: {}\n", table.rows().size(),
          (run.folder / (table.name() + ".csv")).string());
    fmt::print("\n");
  }
}

/// A paragraph of text that may hold names of files.
void say_paragraph(std::string_view start, std::string_view text) {
  fmt::print("{}", paragraph(start, printable(text), columns_of_terminal()));
}

/// What a run says first: the sentence that a report begins with, or that of its first finding.
std::string answer_of(const Results& results) {
  if (results.headline) return results.headline->sentence;
  if (results.findings.empty()) return "no finding";
  const std::string& finding = results.findings.front();
  const std::size_t end = finding.find(". ");
  return end == std::string::npos ? finding : finding.substr(0, end + 1);
}

/// Where an experiment is among those of a call.
struct Place {
  std::size_t number = 1;  ///< from 1
  std::size_t all = 1;
  double earlier_seconds = 0.0;  ///< that those before it took
};

/// One experiment of several in a line, or as many as its answer takes.
void print_one_of(const Place& place, const RunRecord& record, const Results& results) {
  const std::string number =
      fmt::format("{:>{}}/{}", place.number, std::to_string(place.all).size(), place.all);
  fmt::print("{} {} {}\n", faint(number), bold(record.experiment),
             faint(fmt::format("{:.1f} s", record.duration_seconds)));
  say_paragraph("  ", answer_of(results));
}

void print_alone(const RunRecord& record, const Results& results, const WrittenRun& run) {
  fmt::print("{}\n", bold(record.experiment));
  say_paragraph("", record.question);
  fmt::print("\n");
  for (const std::string& finding : results.findings) say_paragraph("* ", finding);
  fmt::print("\n");
  say_paragraph("", fmt::format("{} files in {} after {:.1f} s.", run.files.size(),
                                run.folder.string(), record.duration_seconds));
}

void print_for_people(const RunArguments& options, const Place& place, const RunRecord& record,
                      const Results& results, const WrittenRun& run) {
  if (place.all > 1)
    print_one_of(place, record, results);
  else
    print_alone(record, results, run);
  if (options.verbose) {
    fmt::print("\n");
    print_tables(results, run);
  }
  std::fflush(stdout);
}

/// Where the results are, and how to read them.
void print_end(const RunArguments& options, std::size_t experiments, double seconds) {
  fmt::print("\n");
  if (experiments > 1)
    say_paragraph("", fmt::format("{} experiments after {:.1f} s, results in {}.", experiments,
                                  seconds, options.out));
  const std::string out = shell_quoted(options.out);
  say_paragraph("", fmt::format("`fp8lab report {} -o report.html` makes a page of them{}.", out,
                                options.verbose ? "" : "; -v prints their tables"));
}

std::string bar_name(const Job& job, const Place& place) {
  return place.all == 1 ? std::string(job.experiment->name)
                        : fmt::format("{}/{} {}", place.number, place.all, job.experiment->name);
}

/// "  about 2:05 left" of several experiments, as if those to come took as long as those before.
std::string time_left(const Place& place, double fraction,
                      std::chrono::steady_clock::time_point start) {
  const double seconds =
      place.earlier_seconds +
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double done = static_cast<double>(place.number - 1) + fraction;
  if (place.all == 1 || done <= 0.0 || seconds < 2.0) return "";
  const auto left = static_cast<long>(seconds * (static_cast<double>(place.all) - done) / done);
  return fmt::format("  {}:{:02} left", left / 60, left % 60);
}

/// "a or b": the experiments whose messages MPI can carry.
std::string over_mpi_names() {
  std::vector<std::string_view> names;
  for (const Experiment& experiment : all_experiments())
    if (supports_mpi(experiment.default_toml)) names.push_back(experiment.name);
  return fmt::format("{}", fmt::join(names, " or "));
}

/// What the processes other than the speaking one return is empty.
WrittenRun run_one(const RunArguments& options, const Part& part, const Job& job, Place& place) {
  RunRecord record{.experiment = std::string(job.experiment->name),
                   .question = read_question(job.experiment->default_toml),
                   .parameters = job.parameters,
                   .seed = options.seed,
                   .quick = options.quick,
                   .threads = options.threads,
                   .command = command_of(options, part, job),
                   .started = std::chrono::system_clock::now()};
  RunContext context{.parameters = job.parameters,
                     .seed = options.seed,
                     .threads = options.threads,
                     .on_progress = {},
                     .fabric = part.fabric,
                     .backend = find_backend(options.backends, options.backend)};
  Results results;
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar bar(bar_name(job, place), part.speaks);
    context.on_progress = [&](double fraction) {
      bar.show(fraction, time_left(place, fraction, start));
    };
    results = job.experiment->run(context);
  }
  // Nobody writes before all have finished: a run that lost a process leaves no file.
  part.wait_for_all();
  if (!part.speaks) return {};
  record.duration_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  WrittenRun run =
      write_results(results, record, options.out, options.no_plots ? Plots::skip : Plots::draw);
  if (!options.no_plots && !run.plots_note.empty())
    say(stderr, "fp8lab: {}: {}\n", job.experiment->name, run.plots_note);
  if (!options.json) print_for_people(options, place, record, results, run);
  place.earlier_seconds += record.duration_seconds;
  return run;
}

int run_jobs(const RunArguments& options, const Part& part) {
  find_backend(options.backends, options.backend);  // before anything runs
  std::vector<Job> jobs = jobs_of(options);
  for (const std::string& assignment : options.assignments) apply(jobs, assignment);
  const ModelBook book = load_models(options.models);
  for (Job& job : jobs) resolve_models(job.parameters, book);
  const bool over_mpi = jobs.size() == 1 && supports_mpi(jobs.front().experiment->default_toml);
  require(!options.mpi || over_mpi, "mpi", fmt::format("{} alone", over_mpi_names()),
          fmt::format("{} experiments, the first {}", jobs.size(), jobs.front().experiment->name));
  for (const Job& job : jobs)
    if (part.speaks) require_writable_results(options.out, std::string(job.experiment->name));
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  Place place{1, jobs.size(), 0.0};
  for (const Job& job : jobs) {
    const WrittenRun done = run_one(options, part, job, place);
    ++place.number;
    if (part.speaks)
      runs.push_back({{"folder", done.folder.string()},
                      {"result", parse_json<nlohmann::ordered_json>(done.result_json, "result")}});
  }
  if (part.speaks && !options.json) print_end(options, jobs.size(), place.earlier_seconds);
  if (part.speaks && options.json)
    fmt::print("{}\n", json_text(nlohmann::ordered_json{{"runs", runs}}, 2));
  return kPass;
}

int run(RunArguments options, [[maybe_unused]] const Command& program) {
  read_run_file(options);
  options.seed = options.given_seed.value_or(options.seed);
  options.threads = team_size(options.threads);
  if (!options.mpi) return run_jobs(options, {});
#ifdef FP8LAB_WITH_MPI
  const mpi::Session session;
  return session.guard(kUsage, [&] {
    return naming_options(program, [&] {
      const std::unique_ptr<Fabric> fabric = mpi::make_fabric(session);
      return run_jobs(options, {fabric.get(), session.size(), session.is_root(),
                                [&session] { session.barrier(); }});
    });
  });
#else
  throw Error("mpi", "a build with MPI (FP8LAB_ENABLE_MPI)", "one without");
#endif
}

}  // namespace

void add_run(Command& app, Action& action, std::vector<Backend> backends) {
  auto options = std::make_shared<RunArguments>();
  options->backends = std::move(backends);
  options->backend = options->backends.front().name;
  Command* command =
      app.add_subcommand("run", "Run experiments and write their tables, plots and result.json");
  command->add_option("NAME", options->names, "experiments, all, or a run file (.toml)")
      ->required();
  command->add_flag("--quick", options->quick, "run the small form, for a first look");
  command->add_option("--seed", options->given_seed, "seed of all random numbers")
      ->default_str("1")
      ->check([](const std::string& text) {
        const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
        return digits ? "" : "expected an integer from 0 to 2^64 - 1, got '" + text + "'";
      })
      ->take_last();
  command
      ->add_option("--set", options->assignments,
                   "KEY=VALUE, or EXPERIMENT.KEY=VALUE if several experiments run")
      ->type_name("KEY=VALUE")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  add_models_option(*command, options->models);
  command->add_option("--out", options->out, "folder in which each experiment gets its own folder")
      ->capture_default_str()
      ->take_last();
  command
      ->add_option("--backend", options->backend,
                   fmt::format("backend of matrix products and casts: {}",
                               fmt::join(backend_names(options->backends), ", ")))
      ->capture_default_str()
      ->take_last();
  command
      ->add_option("--threads", options->threads, "threads; results do not depend on their number")
      ->check(between(1, kMostThreads))
      ->take_last();
  command->add_flag("--no-plots", options->no_plots, "tables only");
  command->add_flag("-v,--verbose", options->verbose, "print the tables too");
  command->add_flag(
      "--mpi", options->mpi,
      "under mpirun: run collectives between its processes; the results are the same");
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback(
      [options, &action, &app] { action = [options, &app] { return run(*options, app); }; });
}

void add_run(Command& app, Action& action) { add_run(app, action, {Backend{}}); }

}  // namespace fp8lab::cli
