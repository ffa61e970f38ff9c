// plumb plan: computes what a training step of a model costs on a cluster. Returns exit status 0,
// or 2 on bad usage or if the model's file could not be read.
#include <unistd.h>

#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "audit/commands/commands.h"
#include "audit/plan/gpus.h"
#include "audit/plan/model_file.h"
#include "audit/plan/plan_report.h"
#include "audit/plan/quantity.h"
#include "command_line/usage.h"

namespace plumbline::audit {
namespace {

// Options as given on the command line; empty if not given.
struct PlanArguments {
  std::string model, parameters, active, layers, hidden, heads, sequence;
  std::string gpu = "h100", dtype = "bf16", gpus, peak, memory, mfu, domain, link = "50";
  std::string domain_link;
  bool one_rail = false;
  std::string batch, micro = "1", tensor = "1", pipeline = "1", stages_a_rank = "1";
  std::string sharding = "zero3", weight_bytes = "2", gradient_bytes = "2", optimizer_bytes = "12";
  std::string gathers = "1", reductions = "1";
  std::string format = "text", output;
};

// Parses quantities until the first error, which `status` returns.
class Quantities {
 public:
  void Take(const char* option, const std::string& text, double* out, double unit = 1) {
    if (text.empty() || !status_.ok()) return;
    const auto value = ReadQuantity(text);
    if (value.ok()) {
      *out = *value * unit;
    } else {
      status_ = absl::InvalidArgumentError(absl::StrCat(option, ": ", value.status().message()));
    }
  }
  void Take(const char* option, const std::string& text, int64_t* out) {
    double value = static_cast<double>(*out);
    Take(option, text, &value);
    if (status_.ok() && !(value < 1e15 && value == std::floor(value)))
      status_ = absl::InvalidArgumentError(
          absl::StrCat(option, ": expected a whole number, found \"", text, "\""));
    if (status_.ok()) *out = static_cast<int64_t>(value);
  }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// Reads the model's file first; options override it.
absl::Status TakeModel(const PlanArguments& a, plan::ModelShape* shape, PlanReport* report) {
  if (!a.model.empty()) {
    auto counted = ReadModel(a.model);
    if (!counted.ok()) return counted.status();
    *shape = counted->shape;
    report->model = a.model;
    report->notes = std::move(counted->notes);
  }
  Quantities q;
  q.Take("--parameters", a.parameters, &shape->parameters);
  if (!a.parameters.empty() && a.active.empty()) shape->active = 0;
  q.Take("--active", a.active, &shape->active);
  q.Take("--layers", a.layers, &shape->layers);
  q.Take("--hidden", a.hidden, &shape->hidden);
  q.Take("--heads", a.heads, &shape->heads);
  q.Take("--sequence", a.sequence, &shape->sequence);
  if (!q.status().ok()) return q.status();
  for (const auto& [option, there] : {std::pair{"--parameters", shape->parameters > 0},
                                      {"--layers", shape->layers > 0},
                                      {"--sequence", shape->sequence > 0}}) {
    if (!there)
      return absl::InvalidArgumentError(
          absl::StrCat("expected ", option, ", or --model with a config.json"));
  }
  return absl::OkStatus();
}

// Reads the GPU's data sheet first. If there is no data sheet for the GPU, the options must give
// its peak, memory and link.
absl::Status TakeCluster(const PlanArguments& a, plan::Cluster* c) {
  const auto gpu = FindGpu(a.gpu);
  const bool reported = !a.peak.empty() && !a.memory.empty() && !a.domain_link.empty();
  if (!gpu.ok() && !reported) return gpu.status();
  if (gpu.ok()) {
    c->memory = gpu->memory * 1e9;
    c->domain = gpu->domain;
    c->domain_link = gpu->domain_link * 1e9;
    if (const auto peak = PeakOf(*gpu, a.dtype); peak.ok()) {
      c->peak = *peak;
    } else if (a.peak.empty()) {
      return peak.status();
    }
  }
  Quantities q;
  q.Take("--gpus", a.gpus, &c->gpus);
  q.Take("--peak", a.peak, &c->peak, 1e12);
  q.Take("--memory", a.memory, &c->memory, 1e9);
  q.Take("--mfu", a.mfu, &c->mfu);
  q.Take("--domain", a.domain, &c->domain);
  q.Take("--link", a.link, &c->link, 1e9);
  q.Take("--domain-link", a.domain_link, &c->domain_link, 1e9);
  c->rails = !a.one_rail;
  return q.status();
}

// Reads the layout. plan::CheckPlan checks later whether it fits the model and the cluster.
absl::Status TakeLayout(const PlanArguments& a, plan::Layout* l) {
  Quantities q;
  q.Take("--batch", a.batch, &l->batch_tokens);
  q.Take("--micro-batch", a.micro, &l->micro_sequences);
  q.Take("--tensor", a.tensor, &l->tensor);
  q.Take("--pipeline", a.pipeline, &l->stages);
  q.Take("--virtual", a.stages_a_rank, &l->virtual_stages);
  q.Take("--weight-bytes", a.weight_bytes, &l->weight_bytes);
  q.Take("--gradient-bytes", a.gradient_bytes, &l->gradient_bytes);
  q.Take("--optimizer-bytes", a.optimizer_bytes, &l->optimizer_bytes);
  q.Take("--gathers", a.gathers, &l->gathers);
  q.Take("--reductions", a.reductions, &l->reductions);
  for (const plan::Sharding s : {plan::Sharding::kNone, plan::Sharding::kOptimizer,
                                 plan::Sharding::kGradients, plan::Sharding::kWeights}) {
    if (a.sharding == plan::ShardingName(s)) l->sharding = s;
  }
  return q.status();
}

absl::StatusOr<PlanReport> PlanOf(const PlanArguments& a) {
  PlanReport report;
  plan::Input in;
  if (auto s = TakeModel(a, &in.model, &report); !s.ok()) return s;
  if (auto s = TakeCluster(a, &in.cluster); !s.ok()) return s;
  if (auto s = TakeLayout(a, &in.layout); !s.ok()) return s;
  auto made = plan::MakePlan(in);
  if (!made.ok()) return made.status();
  report.plan = *std::move(made);
  report.gpu = a.gpu;
  report.dtype = a.dtype;
  return report;
}

int RunPlan(const PlanArguments& arguments) {
  const absl::StatusOr<PlanReport> report = PlanOf(arguments);
  if (!report.ok()) return Fail(std::string(report.status().message()));
  const TextStyle style = arguments.output.empty() ? StyleFor(STDOUT_FILENO) : TextStyle{};
  const std::string text = arguments.format == "json"   ? PlanJson(*report)
                           : arguments.format == "html" ? PlanHtml(*report)
                                                        : PlanText(*report, style);
  return WriteOutput(arguments.output, text) ? kExitClean : kExitError;
}

}  // namespace

void RegisterPlan(CLI::App& app, int* status) {
  auto a = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand(
      "plan", "What limits a training step of a model on a cluster, and what moves that limit");
  const auto add = [command](const char* group, const char* name, std::string* value,
                             const char* unit, const char* text) {
    CLI::Option* option = command->add_option(name, *value, text)->type_name(unit)->group(group);
    if (!value->empty()) option->capture_default_str();
    return option;
  };
  constexpr char kModel[] = "Model", kCluster[] = "Cluster", kLayout[] = "Layout";
  add(kModel, "--model", &a->model, "FILE", "A Hugging Face config.json");
  add(kModel, "--parameters", &a->parameters, "N", "Parameters, e.g. 100B");
  add(kModel, "--active", &a->active, "N", "Parameters used by one token (mixture of experts)");
  add(kModel, "--layers", &a->layers, "N", "Layers");
  add(kModel, "--hidden", &a->hidden, "N", "Width of a layer, for the activation memory");
  add(kModel, "--heads", &a->heads, "N", "Number of attention heads");
  add(kModel, "--sequence", &a->sequence, "N", "Tokens per sequence");
  add(kCluster, "--gpus", &a->gpus, "N", "GPUs")->required();
  add(kCluster, "--gpu", &a->gpu, "NAME", "a100, h100, h200, b200, gb200");
  add(kCluster, "--dtype", &a->dtype, "NAME", "Dtype of the matrix products")
      ->check(OneOf({"bf16", "fp16", "fp8", "tf32", "fp32"}));
  add(kCluster, "--mfu", &a->mfu, "SHARE",
      "Share of the peak that the computation alone reaches [0.4]");
  add(kCluster, "--peak", &a->peak, "TFLOPS", "Peak of one GPU, dense; overrides the data sheet");
  add(kCluster, "--memory", &a->memory, "GB", "Memory of one GPU; overrides the data sheet");
  add(kCluster, "--domain", &a->domain, "N", "GPUs joined by one fast switch");
  add(kCluster, "--link", &a->link, "GB/s", "Bandwidth of one GPU to other domains, one direction");
  add(kCluster, "--domain-link", &a->domain_link, "GB/s",
      "Bandwidth of one GPU within its domain, one direction");
  command
      ->add_flag("--one-rail", a->one_rail,
                 "One GPU's link carries all traffic that leaves a domain (default: each GPU "
                 "carries its part)")
      ->group(kCluster);
  add(kLayout, "--batch", &a->batch, "TOKENS", "Tokens per step of all GPUs, e.g. 4M")->required();
  add(kLayout, "--micro-batch", &a->micro, "N", "Sequences per micro-batch of a replica");
  add(kLayout, "--tensor", &a->tensor, "N", "GPUs that share each layer");
  add(kLayout, "--pipeline", &a->pipeline, "N", "Stages");
  add(kLayout, "--virtual", &a->stages_a_rank, "N", "Interleaved stages per GPU");
  add(kLayout, "--sharding", &a->sharding, "HOW",
      "Sharding over replicas: none, optimizer state (zero1), also gradients (zero2), also weights "
      "(zero3, FSDP)")
      ->check(OneOf({"none", "zero1", "zero2", "zero3"}));
  add(kLayout, "--weight-bytes", &a->weight_bytes, "N", "Bytes of a weight, stored and gathered");
  add(kLayout, "--gradient-bytes", &a->gradient_bytes, "N", "Bytes of per gradient, as reduced");
  add(kLayout, "--optimizer-bytes", &a->optimizer_bytes, "N",
      "Bytes of optimizer state per parameter");
  add(kLayout, "--gathers", &a->gathers, "N",
      "Micro-batches per step that gather the weights again");
  add(kLayout, "--reductions", &a->reductions, "N", "Reduce-scatters of the gradients per step");
  AddReportOptions(command, {"text", "json", "html"}, &a->format, &a->output);
  command->callback([a, status] { *status = RunPlan(*a); });
}

}  // namespace plumbline::audit
