// plumb certify A B -o FILE: certifies that two recordings hold the same bits, or gives the first
// difference. Returns exit status 0 if they are equal (with --baseline: not worse), 1 if they
// differ, 2 if equality could not be established, and on bad usage. With --verify: 0 if the
// certificate is genuine, 1 if it is not.
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "audit/certify/certificate.h"
#include "audit/commands/commands.h"
#include "command_line/usage.h"

namespace plumbline::audit {
namespace {

struct CertifyArguments {
  std::string a, b, output, key, public_key, baseline, verify;
  std::vector<std::string> ignore, declare_a, declare_b;
};

// Reads "NAME=VALUE" words. Returns an error message or "".
std::string Declare(const std::vector<std::string>& words, const char* option, Environment* to) {
  for (const std::string& word : words) {
    const size_t at = word.find('=');
    if (at == std::string::npos || at == 0)
      return absl::StrCat(option, ": expected NAME=VALUE, found ", word);
    (*to)[word.substr(0, at)] = {word.substr(at + 1)};
  }
  return "";
}

// Checks the signature of a certificate. Returns an exit status.
int CheckSignature(const std::string& file, const nlohmann::json& certificate,
                   const std::string& public_key, int status_of_fault) {
  const absl::StatusOr<std::string> fault = SignatureFault(certificate, public_key);
  if (!fault.ok()) return Fail(std::string(fault.status().message()));
  if (fault->empty()) return kExitClean;
  Fail(file + ": " + *fault);
  return status_of_fault;
}

int RunVerify(const CertifyArguments& arguments) {
  if (arguments.public_key.empty()) return Fail("--verify: expected --public-key FILE");
  const auto certificate = ReadCertificate(arguments.verify);
  if (!certificate.ok()) {
    Fail(std::string(certificate.status().message()));
    return absl::IsInvalidArgument(certificate.status()) ? kExitFindings : kExitError;
  }
  if (const int status =
          CheckSignature(arguments.verify, *certificate, arguments.public_key, kExitFindings);
      status != kExitClean)
    return status;
  const std::pair<const char*, const std::string*> sides[] = {{"a", &arguments.a},
                                                              {"b", &arguments.b}};
  for (const auto& [side, path] : sides) {
    if (path->empty()) continue;
    const auto fault = InputFault(*certificate, side, *path);
    if (!fault.ok()) return Fail(std::string(fault.status().message()));
    if (!fault->empty()) {
      Fail(*fault);
      return kExitFindings;
    }
  }
  return WriteOutput("", "genuine\n" + CertificateSummary(*certificate)) ? kExitClean : kExitError;
}

int HoldToBaseline(const CertifyArguments& arguments, const nlohmann::json& now) {
  const auto baseline = ReadCertificate(arguments.baseline);
  if (!baseline.ok()) return Fail("--baseline: " + std::string(baseline.status().message()));
  if (!arguments.public_key.empty()) {
    const int status =
        CheckSignature(arguments.baseline, *baseline, arguments.public_key, kExitError);
    if (status != kExitClean) return status;
  }
  const auto worse = WorseThan(*baseline, now);
  if (!worse.ok()) return Fail("--baseline: " + std::string(worse.status().message()));
  for (const std::string& one : *worse) Fail("--baseline: " + one);
  return worse->empty() ? kExitClean : kExitFindings;
}

int RunCertify(const CertifyArguments& arguments) {
  if (!arguments.verify.empty()) return RunVerify(arguments);
  if (arguments.a.empty()) return Fail("expected A, found no path");
  CertifyOptions options;
  options.a = arguments.a;
  options.b = arguments.b;
  options.ignore = arguments.ignore;
  for (const std::string* path : {&arguments.a, &arguments.b}) {
    std::error_code error;
    if (!path->empty() && !arguments.output.empty() &&
        std::filesystem::equivalent(*path, arguments.output, error))
      return Fail("--output: expected a file that is not an input, found " + *path);
  }
  std::string wrong = Declare(arguments.declare_a, "--declare-a", &options.declared_a);
  if (wrong.empty()) wrong = Declare(arguments.declare_b, "--declare-b", &options.declared_b);
  if (!wrong.empty()) return Fail(wrong);
  const absl::StatusOr<Certificate> certificate = Certify(options);
  if (!certificate.ok()) return Fail(std::string(certificate.status().message()));
  for (const std::string& problem : certificate->problems) Fail(problem);
  nlohmann::json json = CertificateJson(*certificate, arguments.ignore);
  if (!arguments.key.empty()) {
    const absl::Status is_signed = SignCertificate(arguments.key, &json);
    if (!is_signed.ok()) return Fail("--key: " + std::string(is_signed.message()));
  }
  if (!arguments.output.empty() && !WriteOutput(arguments.output, CertificateText(json)))
    return kExitError;
  if (!WriteOutput("", CertificateSummary(json))) return kExitError;
  if (certificate->tally.compared() == 0)
    return Fail("expected values that both sides have, found none: nothing was compared");
  if (!arguments.baseline.empty()) return HoldToBaseline(arguments, json);
  if (certificate->tally.differ() > 0) return kExitFindings;
  return certificate->tally.open() ? kExitError : kExitClean;
}

}  // namespace

void RegisterCertify(CLI::App& app, int* status) {
  auto arguments = std::make_shared<CertifyArguments>();
  CLI::App* command = app.add_subcommand(
      "certify",
      "Certifies that two recordings of the same work hold the same bits, or gives the first "
      "difference (docs/certify.md)");
  command->add_option("A", arguments->a, "Rollouts, a recorded run, or a checkpoint")
      ->type_name("PATH");
  command
      ->add_option("B", arguments->b,
                   "The other side. Without it, the engine's half of A is compared with the "
                   "trainer's")
      ->type_name("PATH");
  command->add_option("-o,--output", arguments->output, "Write the certificate to this file")
      ->type_name("FILE");
  command->add_option("--key", arguments->key, "Sign with this private Ed25519 key (PEM)")
      ->type_name("FILE");
  command
      ->add_option("--verify", arguments->verify,
                   "Verify this certificate; with A and B, also that they are its inputs")
      ->type_name("FILE");
  command
      ->add_option("--public-key", arguments->public_key,
                   "The public key (PEM) for --verify, and for the signature of --baseline")
      ->type_name("FILE");
  command
      ->add_option("--baseline", arguments->baseline,
                   "An earlier certificate: return 1 only if more differs than it states")
      ->type_name("FILE");
  command->add_option("--ignore", arguments->ignore, "Leave out series; may be repeated")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  for (const auto& [name, words] : {std::pair("--declare-a", &arguments->declare_a),
                                    std::pair("--declare-b", &arguments->declare_b)}) {
    command->add_option(name, *words, "A fact of that side's environment; may be repeated")
        ->type_name("NAME=VALUE")
        ->allow_extra_args(false);
  }
  command->callback([arguments, status] { *status = RunCertify(*arguments); });
}

}  // namespace plumbline::audit
