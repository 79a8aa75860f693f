#pragma once
// Reads and writes whole files. Files are written atomically (see
// output_file.hpp).

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

namespace fp8lab {

/// Reads a whole file, or an inherited stream (/dev/stdin, a shell's <(...)) of at
/// most 1 GiB. Throws `Error` with the path and the reason, also for folders, devices
/// and named pipes.
std::string read_file(const std::filesystem::path& path);

/// Writes a whole file and replaces an existing one. Throws `Error` with the path
/// and the system's reason.
void write_file(const std::filesystem::path& path, std::string_view text);

/// The same for the output of `write` to the stream. If `write` throws, or the disk
/// is full, there is no partial file, and an existing file does not change.
void write_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);

/// Creates `folder` if it does not exist. Throws `Error` with the path and the reason
/// unless files can be written there, so that long work does not fail at its end.
void make_writable_folder(const std::filesystem::path& folder);

/// The same without making it: the nearest folder above that exists must take files.
void require_writable_folder(const std::filesystem::path& folder);

/// Throws `Error` with the path and the reason unless a file can be written under this name, so
/// that long work does not fail at its end. A file that exists does not change; devices and pipes
/// are not tried.
void require_writable_file(const std::filesystem::path& path);

/// Throws `Error` that names `argument` unless `name` consists of letters, digits,
/// `-`, `_` and inner dots, so that it is the name of a file in one folder.
void require_file_name(std::string_view argument, std::string_view name);

}  // namespace fp8lab
