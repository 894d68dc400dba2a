//! What a configuration reads besides its own text. The caller has the files and the variables.

/// Files and variables, by their names.
pub trait Surroundings {
    /// A file's text. Bytes that are not UTF-8 are replacement characters.
    ///
    /// # Errors
    /// Why the file can't be read.
    fn file(&mut self, path: &str) -> Result<String, String>;

    /// The text of a file that has a secret.
    ///
    /// # Errors
    /// Why the file can't be read.
    fn secret(&mut self, path: &str) -> Result<String, String> {
        self.file(path)
    }

    /// The files whose paths match a pattern with `*` and `?`, in the order of their names.
    ///
    /// # Errors
    /// Why a folder can't be read.
    fn files(&mut self, pattern: &str) -> Result<Vec<String>, String>;

    /// A variable of the environment.
    fn variable(&mut self, name: &str) -> Option<String>;

    /// All variables whose names begin with a text, in the order of their names.
    fn variables(&mut self, beginning: &str) -> Vec<(String, String)>;
}

/// Files alone.
pub(super) struct Files<'a>(pub(super) &'a mut dyn FnMut(&str) -> Result<String, String>);

impl Surroundings for Files<'_> {
    fn file(&mut self, path: &str) -> Result<String, String> {
        (self.0)(path)
    }

    fn files(&mut self, _: &str) -> Result<Vec<String>, String> {
        Err("there is no folder here".into())
    }

    fn variable(&mut self, _: &str) -> Option<String> {
        None
    }

    fn variables(&mut self, _: &str) -> Vec<(String, String)> {
        Vec::new()
    }
}
