// Reads settings of a run from a small file that its logger wrote next to its series.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace plumbline::audit {

// Both add "config: NAME" for each number, text and flag in the file `name`, a path relative to the
// folder of `file`. If that file is absent, too large or of another form, they add nothing, because
// the series are valid without it. YAML must have the form of W&B and SwanLab: `NAME:` with an
// indented `value: VALUE` below.
void TakeJsonConfig(const std::string& file, std::string_view name,
                    std::map<std::string, std::string>* settings);
void TakeYamlConfig(const std::string& file, std::string_view name,
                    std::map<std::string, std::string>* settings);

// Adds "config: NAME" with this value. Ignores a value that is empty or longer than 1 KiB.
void AddConfig(std::string_view name, std::string_view value,
               std::map<std::string, std::string>* settings);
// The same for each number, text and flag of a JSON object; names begin with `prefix`.
void AddJsonConfig(std::string_view json, const std::string& prefix,
                   std::map<std::string, std::string>* settings);
// The same for each file of a folder: NAME is the file's name, and the value is the text in the
// file. Joins names of nested folders by '/'.
void AddFolderConfig(const std::string& folder, std::map<std::string, std::string>* settings);

}  // namespace plumbline::audit
