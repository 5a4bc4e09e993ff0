//! A store that fails at its n-th operation and all later ones, like one whose client was killed or whose network
//! failed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn ObjectStore>,
    left: AtomicUsize,
    /// Whether the failing write still reaches the store, and only its answer is lost.
    lands: bool,
}

impl Faulty {
    pub fn new(inner: Arc<dyn ObjectStore>, operations: usize, lands: bool) -> Faulty {
        Faulty { inner, left: AtomicUsize::new(operations), lands }
    }

    /// Whether the store still works, and whether this is the operation that fails.
    fn step(&self) -> (bool, bool) {
        let was = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        (was.is_ok(), self.left.load(Ordering::SeqCst) == 0 && was == Ok(1))
    }

    fn check(&self) -> Result<()> {
        if self.step().0 { Ok(()) } else { Err(broken()) }
    }
}

fn broken() -> Error {
    Error::Generic { store: "faulty", source: "made to fail".into() }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faulty {}", self.inner)
    }
}

#[async_trait::async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (works, last) = self.step();
        if !works {
            return Err(broken());
        }
        if last && !self.lands {
            return Err(broken());
        }
        let done = self.inner.put_opts(location, payload, options).await?;
        if last { Err(broken()) } else { Ok(done) }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.check()?;
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.check()?;
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        // Each removal counts, so that a failure can fall between two of them.
        let allowed = self.left.load(Ordering::SeqCst);
        let (mut stays, inner) = (allowed, Arc::clone(&self.inner));
        self.left.store(allowed.saturating_sub(1), Ordering::SeqCst);
        locations
            .then(move |location| {
                let works = stays > 0;
                stays = stays.saturating_sub(1);
                let inner = Arc::clone(&inner);
                async move {
                    if !works {
                        return Err(broken());
                    }
                    let mut gone = inner.delete_stream(stream::iter([location]).boxed());
                    gone.next().await.unwrap_or_else(|| Err(broken()))
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.check() {
            Ok(()) => self.inner.list(prefix),
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.check()?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.check()?;
        self.inner.copy_opts(from, to, options).await
    }
}
